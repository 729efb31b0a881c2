// A draw by weights and one uniform. Weights are added by chunks, so that the threads of a team can
// share them out and find the same index.
//
//   int token = inverse_cdf(weights, V, total, to_uniform(noise(...)));
#pragma once

#include "kernels/shared/host_device.h"

namespace coppice {

/// Consecutive weights that inverse_cdf adds up before it looks where it is.
inline constexpr int kDrawChunk = 256;

COPPICE_HD constexpr int draw_chunk_end(int first, int count) {
  return first + kDrawChunk < count ? first + kDrawChunk : count;
}

/// The sum of the weights first..end-1, in order, those not above 0 left out.
COPPICE_ANY_TEAM
template <class Weights>
COPPICE_HD double chunk_sum(const Weights& weights, int first, int end) {
  double sum = 0.0;
  for (int i = first; i < end; ++i) sum += weights[i] > 0 ? static_cast<double>(weights[i]) : 0.0;
  return sum;
}

/// The first index of first..end-1 where `before` and the weights up to it exceed `goal`; where
/// rounding leaves none, the last one with weight.
COPPICE_ANY_TEAM
template <class Weights>
COPPICE_HD int draw_in_chunk(const Weights& weights, int first, int end, double before,
                             double goal) {
  int last = -1;
  for (int i = first; i < end; ++i) {
    if (!(weights[i] > 0)) continue;
    last = i;
    before += static_cast<double>(weights[i]);
    if (before > goal) break;
  }
  return last;
}

/// Index drawn with probability weight / total by a uniform in [0, 1); never one of weight 0. Adds
/// by chunks, so that the threads of a team can share them out.
COPPICE_ANY_TEAM
template <class Weights>
COPPICE_HD int inverse_cdf(const Weights& weights, int count, double total, double uniform) {
  const double goal = uniform * total;
  double before = 0.0, before_last = 0.0;
  int last = -1;  // first index of the last chunk with weight
  for (int first = 0; first < count; first += kDrawChunk) {
    const double sum = chunk_sum(weights, first, draw_chunk_end(first, count));
    if (!(sum > 0.0)) continue;
    last = first;
    before_last = before;
    before += sum;
    if (before > goal) break;
  }
  if (last < 0) return -1;
  return draw_in_chunk(weights, last, draw_chunk_end(last, count), before_last, goal);
}

}  // namespace coppice
