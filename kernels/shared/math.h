// log and exp in double with the same bits on every compiler, host and device: IEEE operations and
// fma in one written order, no libm. A SIMD version that does the same operations lane by lane
// gives the same bits. Polynomials: our own fits at Chebyshev nodes, made with mpmath at 200 bits.
//
//   double g = -log_positive(-log_positive(u));
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/shared/host_device.h"

namespace coppice {

COPPICE_HD inline uint64_t bits_of(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
COPPICE_HD inline double double_of(uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits: kLn2High * exponent is exact
inline constexpr double kLn2Low = 0x1.ef35793c76730p-45;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr uint64_t kOneBits = 0x3ff0000000000000u;
inline constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcdu;
inline constexpr uint64_t kMantissaMask = 0x000fffffffffffffu;
/// 1.5 * 2^52: adding it to a small double leaves the nearest integer in the low mantissa bits.
inline constexpr double kRoundingMagic = 0x1.8p52;

/// (2 atanh(s) / s - 2) / z with z = s^2, for |s| <= 0.172; relative error in log below 2^-57.
COPPICE_HD constexpr double log_coefficient(int i) {  // a device reads no namespace's arrays
  constexpr double kCoefficients[7] = {
      0x1.5555555555558p-1, 0x1.9999999995273p-2, 0x1.2492492dfd86cp-2, 0x1.c71c62d5e53e0p-3,
      0x1.7462b91b8df65p-3, 0x1.39fdcceb4bb45p-3, 0x1.2b5f68a50d903p-3};
  return kCoefficients[i];
}

/// Natural logarithm of a positive, normal, finite x. Error below 1.5 ulp; log_positive(1) == 0.
COPPICE_HD inline double log_positive(double x) {
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  const uint64_t shifted = bits_of(x) + (kOneBits - kSqrtHalfBits);
  // The biased exponent is below 2^52, so OR-ing it under 2^52 and subtracting converts it exactly.
  const double exponent = double_of((shifted >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0);
  const double m = double_of((shifted & kMantissaMask) + kSqrtHalfBits);
  const double f = m - 1.0;
  const double s = f / (m + 1.0);
  const double z = s * s;
  double r = log_coefficient(6);
  for (int i = 5; i >= 0; --i) r = std::fma(r, z, log_coefficient(i));
  // log(m) = 2 atanh(s) = 2 s + s R and 2 s = f - s f.
  const double log_m = std::fma(-s, std::fma(-z, r, f), f);
  return std::fma(exponent, kLn2High, std::fma(exponent, kLn2Low, log_m));
}

/// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2; relative error in exp below 2^-56.
COPPICE_HD constexpr double exp_coefficient(int i) {
  constexpr double kCoefficients[10] = {0.5000000000000001,     0.16666666666666669,
                                        0.041666666666623824,   0.008333333333330039,
                                        0.0013888888917367081,  0.00019841269863171557,
                                        2.4801521057868204e-05, 2.7557268276905696e-06,
                                        2.7620201591031547e-07, 2.5100472505694996e-08};
  return kCoefficients[i];
}

/// Below it exp_nonpositive gives 0 rather than a subnormal.
inline constexpr double kExpUnderflow = -708.0;

/// exp(x) for x <= 0, -inf included. Error below 1.5 ulp; 0 under kExpUnderflow.
COPPICE_HD inline double exp_nonpositive(double x) {
  if (!(x >= kExpUnderflow)) return 0.0;
  const double shifted = std::fma(x, kLog2E, kRoundingMagic);
  const double exponent = shifted - kRoundingMagic;
  const double r = std::fma(-exponent, kLn2Low, std::fma(-exponent, kLn2High, x));
  double q = exp_coefficient(9);
  for (int i = 8; i >= 0; --i) q = std::fma(q, r, exp_coefficient(i));
  const double mantissa = std::fma(r * r, q, r) + 1.0;
  // The low bits of `shifted` hold the exponent: shift them to where a double keeps its own.
  return mantissa * double_of((bits_of(shifted) << 52) + kOneBits);
}

}  // namespace coppice
