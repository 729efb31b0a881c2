// RMS norm as plain loops, compiled once for each dispatch target.
#include "kernels/cpu/norm.h"

#include <cmath>

#include "kernels/cpu/simd.h"
// clang-format off: this order is Highway's
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// The loops below are plain: a product of three and a sum round alike at any vector width.
inline float inverse_rms(const float* x, float eps, int dim) {
  return 1.0f / std::sqrt(sum_of_squares(x, dim) / static_cast<float>(dim) + eps);
}

void rms_norm(const float* HWY_RESTRICT x, const float* HWY_RESTRICT weight, float eps, int dim,
              float* HWY_RESTRICT out) {
  const float factor = inverse_rms(x, eps, dim);
  for (int i = 0; i < dim; ++i) out[i] = x[i] * factor * weight[i];
}

void add_rms_norm(const float* HWY_RESTRICT y, const float* HWY_RESTRICT weight, float eps, int dim,
                  float* HWY_RESTRICT x) {
  const float factor = inverse_rms(y, eps, dim);
  for (int i = 0; i < dim; ++i) x[i] += y[i] * factor * weight[i];
}

const NormKernels* get_norm_kernels() {
  static constexpr NormKernels kKernels{rms_norm, add_rms_norm};
  return &kKernels;
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(get_norm_kernels);

const NormKernels& norm_kernels(int64_t target) {
  return *HWY_DISPATCH_TABLE(get_norm_kernels)[dispatch_index(target)]();
}

}  // namespace coppice::cpu
#endif
