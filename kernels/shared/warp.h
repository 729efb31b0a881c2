// From logits to the weights a token is drawn by: penalties, temperature, top-k, top-p, min-p, in
// this order. These plain loops are the definition and the oracle; core's Sampler selects faster
// and equals them. Sources: CTRL (Keskar 2019) for the repetition penalty, Holtzman 2020 for top-p,
// Nguyen 2024 for min-p. Ties go to the lowest id everywhere.
//
//   float weight[V];
//   warp_weights(logits, V, {.inverse_temperature = 1.25, .top_k = 40}, weight);
#pragma once

#include <cstdint>

#include "kernels/shared/host_device.h"
#include "kernels/shared/math.h"

namespace coppice {

struct Penalties {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
};

struct Filters {
  double inverse_temperature = 1.0;
  int top_k = 0;  // 0, or at least the vocabulary: off
  float top_p = 1.0f;
  float min_p = 0.0f;
};

/// The logit of a token that occurs `count` > 0 times in the penalty window.
COPPICE_HD inline float penalised(float logit, int count, const Penalties& penalties) {
  logit = logit > 0.0f ? logit / penalties.repetition : logit * penalties.repetition;
  logit -= penalties.frequency * static_cast<float>(count);
  return logit - penalties.presence;
}

/// Changes each distinct token of window[0..count) once; ids outside 0..vocabulary-1 are no tokens.
COPPICE_HD inline void penalise(float* logits, int vocabulary, const int32_t* window, int count,
                                const Penalties& penalties) {
  for (int i = 0; i < count; ++i) {
    const int32_t token = window[i];
    bool seen = token < 0 || token >= vocabulary;
    for (int j = 0; j < i; ++j) seen = seen || window[j] == token;
    if (seen) continue;
    int occurrences = 0;
    for (int j = i; j < count; ++j) occurrences += window[j] == token ? 1 : 0;
    logits[token] = penalised(logits[token], occurrences, penalties);
  }
}

/// The order of candidates: larger logit first, equal ones by lower id.
COPPICE_HD inline bool comes_before(const float* logits, int32_t a, int32_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/// exp((logit - max) / T): 1 for the most probable token.
COPPICE_HD inline double softmax_weight(float logit, float max, double inverse_temperature) {
  return exp_nonpositive((static_cast<double>(logit) - static_cast<double>(max)) *
                         inverse_temperature);
}

/// Weights are summed as integers, in units of 2^-44, so that a sum has the same bits in any order:
/// scalar, by lanes, or by the blocks of a device. Room for 2^19 tokens of weight 1.
inline constexpr double kWeightUnit = 0x1p-44;
COPPICE_HD inline uint64_t weight_units(double weight) {
  return bits_of(weight * 0x1p44 + 0x1p52) & kMantissaMask;
}

/// True while tokens that hold `before` of `total` leave the nucleus short of top_p.
COPPICE_HD inline bool in_nucleus(uint64_t before, uint64_t total, float top_p) {
  return before == 0 || top_p >= 1.0f ||
         static_cast<double>(before) < static_cast<double>(top_p) * static_cast<double>(total);
}

/// weight[i] = softmax_weight of the tokens that every filter keeps, 0 for the others. Top-p and
/// min-p look at the softmax over what top-k kept. Some logit is finite, none is NaN or +inf.
COPPICE_HD inline void warp_weights(const float* logits, int vocabulary, const Filters& filters,
                                    double* weight) {
  int32_t best = 0;
  for (int32_t i = 1; i < vocabulary; ++i) best = comes_before(logits, i, best) ? i : best;

  uint64_t total = 0;
  for (int32_t i = 0; i < vocabulary; ++i) {
    int rank = 0;
    for (int32_t j = 0; j < vocabulary; ++j) rank += comes_before(logits, j, i) ? 1 : 0;
    const bool kept = filters.top_k == 0 || rank < filters.top_k;
    weight[i] = kept ? softmax_weight(logits[i], logits[best], filters.inverse_temperature) : 0.0;
    total += weight_units(weight[i]);
  }
  // Cutting in place is sound: what a cut token no longer adds, the whole nucleus before it has.
  for (int32_t i = 0; i < vocabulary; ++i) {
    uint64_t before = 0;
    for (int32_t j = 0; j < vocabulary; ++j) {
      if (comes_before(logits, j, i)) before += weight_units(weight[j]);
    }
    if (!in_nucleus(before, total, filters.top_p)) weight[i] = 0.0;
  }
  for (int32_t i = 0; i < vocabulary; ++i) {
    if (weight[i] < static_cast<double>(filters.min_p)) weight[i] = 0.0;
  }
}

}  // namespace coppice
