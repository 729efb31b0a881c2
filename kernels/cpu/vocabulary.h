// Host functions over one row of logits, one function table per dispatch target: the work of a step
// after its forward pass.
//
//   int32_t next = argmax(logits);                                  // greedy
//   int32_t next = gumbel_argmax(logits, 1.0 / t, {seed, 0}, position);   // coupled
#pragma once

#include <cstdint>
#include <span>

#include "kernels/shared/noise.h"

namespace coppice::cpu {

/// argmax of a row that holds a NaN.
inline constexpr int32_t kNotANumber = -1;

struct VocabularyKernels {
  /// Index of the largest value, the lowest among equals; kNotANumber when any value is a NaN.
  int32_t (*argmax)(const float* x, int n);
  /// The k largest in order, equal values by lower index first, NaN below all; 1 <= k <= n.
  void (*top_k)(const float* x, int n, int k, int32_t* index, float* value);
  /// See gumbel_argmax.
  int32_t (*gumbel_argmax)(const float* x, int n, double inverse_temperature, NoiseKey key,
                           int position);
};

/// `target`: one of Highway's target bits, or several for the best of them.
const VocabularyKernels& vocabulary_kernels(int64_t target);

/// The functions above on this machine's best target; rows hold at least one value.
int32_t argmax(std::span<const float> x);
void top_k(std::span<const float> x, int k, int32_t* index, float* value);

/// argmax over tokens of coupled_score(x[token], inverse_temperature, target_noise(key, position,
/// token)), the lowest token among equals; kNotANumber when any logit is a NaN. The same token as
/// that definition gives, always: a token is passed over only when its noise provably cannot reach
/// the best score so far, so that few logarithms are taken. Source: Gumbel-max, Maddison et al.
/// 2014.
int32_t gumbel_argmax(std::span<const float> x, double inverse_temperature, NoiseKey key,
                      int position);

}  // namespace coppice::cpu
