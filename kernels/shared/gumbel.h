// Gumbel noise from a word of Philox, and the score that `coupled` maximises. A vectorised version
// must equal it bit for bit (a target without fma cannot, and calls this one).
//
//   Gumbel-max: argmax_i(logit_i / T + gumbel(word_i)) is a draw from softmax(logit / T).
#pragma once

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

/// inverse_temperature = 1.0 / T, computed once in double: no float logit overflows.
COPPICE_HD inline double coupled_score(float logit, double inverse_temperature, uint32_t word) {
  return std::fma(static_cast<double>(logit), inverse_temperature, gumbel(word));
}

}  // namespace coppice
