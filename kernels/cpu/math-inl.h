// Small per-target helpers of the Highway files: powers of two, fixed-order sums, halves. Included
// once per target, as Highway's own -inl.h files are.
//
// Sums run over kSumLanes virtual lanes and fold by halves, so that targets with fused multiply-add
// agree to the bit whatever their vector width.
#if defined(COPPICE_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_CPU_MATH_INL_H
#undef COPPICE_CPU_MATH_INL_H
#else
#define COPPICE_CPU_MATH_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/base/dtype.h"

#undef COPPICE_UNROLLED
#define COPPICE_UNROLLED HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<Floats>;
inline constexpr size_t kLanes = hn::MaxLanes(Floats());
inline constexpr size_t kSumLanes = 32;
inline constexpr size_t kSumVectors = kSumLanes / kLanes;

/// body(integral_constant 0), ..., (kCount - 1): a loop that g++ surely unrolls before it decides
// which arrays of vectors stay in registers. Bodies are marked COPPICE_UNROLLED.
template <int kCount, class Body>
HWY_INLINE void repeat(const Body& body) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(body);
    body(std::integral_constant<int, kCount - 1>());
  }
}

/// 2^x for x <= 0, relative error under 1.5e-7; 0 below -126, NaN for NaN.
HWY_INLINE FloatVec exp2_nonpositive(FloatVec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Adding 1.5 * 2^23 rounds to an integer n, which then stands in the low bits.
  const FloatVec magic = hn::Set(d, 0x1.8p23f);
  const FloatVec shifted = hn::Add(x, magic);
  const FloatVec r = hn::Sub(x, hn::Sub(shifted, magic));  // exact, in [-1/2, 1/2]
  FloatVec p = hn::Set(d, 0.000154531634f);                // Chebyshev fit of (2^r - 1) / r
  p = hn::MulAdd(p, r, hn::Set(d, 0.00133908633f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961808302f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555035695f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240226507f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147182f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto n = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const FloatVec power = hn::BitCast(d, hn::Add(n, hn::Set(di, 127 << 23)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

/// Adds lanes i and i + width/2 until one is left; destroys x (kSumLanes).
inline float fold_lanes(float* HWY_RESTRICT x) {
  repeat<3>([&](auto step) COPPICE_UNROLLED {
    constexpr size_t kWidth = kSumLanes / 2 >> step();
    const hn::CappedTag<float, (kWidth < kLanes ? kWidth : kLanes)> d;
    for (size_t i = 0; i < kWidth; i += hn::Lanes(d)) {
      hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, x + i + kWidth)), d, x + i);
    }
  });
  return (x[0] + x[2]) + (x[1] + x[3]);
}

/// Sum of x[i]^2: element i goes to virtual lane i % kSumLanes.
inline float sum_of_squares(const float* HWY_RESTRICT x, size_t n) {
  const Floats d;
  HWY_ALIGN float lanes[kSumLanes];
  FloatVec sum[kSumVectors];
  for (size_t v = 0; v < kSumVectors; ++v) sum[v] = hn::Zero(d);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (size_t v = 0; v < kSumVectors; ++v) {
      const FloatVec value = hn::LoadU(d, x + i + v * kLanes);
      sum[v] = hn::MulAdd(value, value, sum[v]);
    }
  }
  for (size_t v = 0; v < kSumVectors; ++v) hn::Store(sum[v], d, lanes + v * kLanes);
  for (size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += x[i] * x[i];
  return fold_lanes(lanes);
}

/// Highway's scalar conversions truncate and know no NaN.
inline constexpr bool kHasHalves = HWY_TARGET != HWY_SCALAR;

/// kLanes values, f16 or f32, as floats.
HWY_INLINE FloatVec load_floats(const float* p) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE FloatVec load_floats(const uint16_t* p) {
  const Floats d;
  if constexpr (kHasHalves) {
    const hn::Rebind<hwy::float16_t, Floats> half;
    return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
  } else {
    HWY_ALIGN float values[kLanes];
    for (size_t i = 0; i < kLanes; ++i) values[i] = half_to_float(p[i]);
    return hn::Load(d, values);
  }
}

/// out[i] = x[i] rounded to nearest even.
inline void round_to_halves(const float* HWY_RESTRICT x, size_t n, uint16_t* HWY_RESTRICT out) {
  size_t i = 0;
  if constexpr (kHasHalves) {
    const Floats d;
    const hn::Rebind<hwy::float16_t, Floats> half;
    for (; i + kLanes <= n; i += kLanes) {
      hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x + i)), half,
                 reinterpret_cast<hwy::float16_t*>(out + i));
    }
  }
  for (; i < n; ++i) out[i] = float_to_half(x[i]);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
