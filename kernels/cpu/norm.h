// RMS norm of a row, one function table per dispatch target. Source: Zhang and Sennrich 2019.
//
//   norm_kernels(HWY_AVX2).rms_norm(x, weight, 1e-5f, 576, out);
#pragma once

#include <cstdint>

namespace coppice::cpu {

struct NormKernels {
  /// out = x / sqrt(mean(x^2) + eps) * weight; (dim) each. The mean is summed in one fixed order.
  void (*rms_norm)(const float* x, const float* weight, float eps, int dim, float* out);
  /// x += y / sqrt(mean(y^2) + eps) * weight
  void (*add_rms_norm)(const float* y, const float* weight, float eps, int dim, float* x);
};

/// `target`: one of Highway's target bits.
const NormKernels& norm_kernels(int64_t target);

}  // namespace coppice::cpu
