// The softmax of kernels/shared/warp.h, several lanes at a time and with the same bits.
#include "kernels/cpu/softmax.h"

#include "kernels/cpu/simd.h"
#include "kernels/shared/warp.h"
// clang-format off: this order is Highway's
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint64_t softmax_weights(const float* HWY_RESTRICT x, int n, float max, double inverse_temperature,
                         double* HWY_RESTRICT weight) {
  uint64_t total = 0;
  int i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128  // those have no fused multiply-add
  using Doubles = hn::CappedTag<double, 8>;
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  const hn::RebindToUnsigned<Doubles> du;
  constexpr int kWidth = static_cast<int>(hn::MaxLanes(Doubles()));
  const auto magic = hn::Set(d, kRoundingMagic);
  auto units = hn::Zero(du);
  for (; i + kWidth <= n; i += kWidth) {
    // exp_nonpositive, step by step.
    const auto y = hn::Mul(hn::Sub(hn::PromoteTo(d, hn::LoadU(df, x + i)), hn::Set(d, max)),
                           hn::Set(d, inverse_temperature));
    // Most of a row that a smaller draft vocabulary was spread over is -infinity.
    if (hn::AllTrue(d, hn::Lt(y, hn::Set(d, kExpUnderflow)))) {
      if (weight != nullptr) hn::StoreU(hn::Zero(d), d, weight + i);
      continue;
    }
    const auto shifted = hn::MulAdd(y, hn::Set(d, kLog2E), magic);
    const auto exponent = hn::Sub(shifted, magic);
    const auto r = hn::NegMulAdd(exponent, hn::Set(d, kLn2Low),
                                 hn::NegMulAdd(exponent, hn::Set(d, kLn2High), y));
    auto q = hn::Set(d, exp_coefficient(9));
    for (int j = 8; j >= 0; --j) q = hn::MulAdd(q, r, hn::Set(d, exp_coefficient(j)));
    const auto mantissa = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0));
    const auto power = hn::Add(hn::ShiftLeft<52>(hn::BitCast(du, shifted)), hn::Set(du, kOneBits));
    const auto w = hn::IfThenElseZero(hn::Ge(y, hn::Set(d, kExpUnderflow)),
                                      hn::Mul(mantissa, hn::BitCast(d, power)));
    if (weight != nullptr) hn::StoreU(w, d, weight + i);
    const auto scaled = hn::Add(hn::Mul(w, hn::Set(d, 0x1p44)), hn::Set(d, 0x1p52));
    units = hn::Add(units, hn::And(hn::BitCast(du, scaled), hn::Set(du, kMantissaMask)));
  }
  HWY_ALIGN uint64_t lanes[kWidth];
  hn::Store(units, du, lanes);
  for (const uint64_t lane : lanes) total += lane;
#endif
  for (; i < n; ++i) {
    const double w = softmax_weight(x[i], max, inverse_temperature);
    if (weight != nullptr) weight[i] = w;
    total += weight_units(w);
  }
  return total;
}

SoftmaxWeights get_softmax_weights() {
  return softmax_weights;
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(get_softmax_weights);

SoftmaxWeights softmax_weights_on(int64_t target) {
  return HWY_DISPATCH_TABLE(get_softmax_weights)[dispatch_index(target)]();
}

uint64_t softmax_weights(std::span<const float> x, float max, double inverse_temperature,
                         double* weight) {
  static const SoftmaxWeights kernel = softmax_weights_on(hwy::SupportedTargets());
  return kernel(x.data(), static_cast<int>(x.size()), max, inverse_temperature, weight);
}

}  // namespace coppice::cpu
#endif
