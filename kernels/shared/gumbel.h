// Gumbel noise from a word of Philox, and the score that `coupled` maximises. A vectorised version
// must equal it bit for bit (a target without fma cannot, and calls this one).
//
//   Gumbel-max: argmax_i(logit_i / T + gumbel(word_i)) is a draw from softmax(logit / T).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/shared/host_device.h"
#include "kernels/shared/math.h"

namespace coppice {

/// -log(-log u) with u = (word + 1/2) 2^-32, which is exact in double and neither 0 nor 1, so the
/// result lies in [-3.14, 22.88]. (In float u can round to 1 and the noise to infinity.)
COPPICE_HD inline double gumbel(uint32_t word) {
  const double u = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -log_positive(-log_positive(u));
}

/// At least gumbel(word), within ln 2 of it for large noise, without a logarithm: most tokens of a
/// row can be passed over by it. Proof: -log u >= 1 - u = (~word + 1/2) 2^-32 >= 2^-(zeros + 1)
/// with the leading zeros of ~word, so gumbel <= (zeros + 1) ln 2.
COPPICE_HD inline double gumbel_bound(uint32_t word) {
#if defined(__CUDA_ARCH__)
  const int zeros = __clz(static_cast<int>(~word));
#else
  const int zeros = std::countl_zero(~word);
#endif
  return (zeros + 1) * 0x1.62e43p-1;  // ln 2 rounded up
}

/// inverse_temperature = 1.0 / T, computed once in double: no float logit overflows.
COPPICE_HD inline double coupled_score(float logit, double inverse_temperature, uint32_t word) {
  return std::fma(static_cast<double>(logit), inverse_temperature, gumbel(word));
}

}  // namespace coppice
