// Toy drafters' common parts: a draft model's warped row, a draw by the coins, a case around a
// drafter.
//
//   enumerate_case(rule, toy_with(sampled_chain_of_two)).deviation
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "decoding/certificate.h"

namespace coppice::test {

/// A model's distribution behind a context and a path, warped as the sequence is.
inline std::vector<float> draft_row(const ToyLogits& model, Sampler& sampler, const Tokens& context,
                                    const Tokens& path = {}) {
  Tokens all = context;
  all.insert(all.end(), path.begin(), path.end());
  const std::span<const float> p = sampler.probabilities(model(all), {context, path});
  return {p.begin(), p.end()};
}

inline int32_t draw(Coins& coins, const std::vector<float>& row) {
  const std::vector<double> weights(row.begin(), row.end());
  return coins.draw(weights, std::accumulate(weights.begin(), weights.end(), 0.0));
}

inline int32_t largest(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// A case of three tokens.
inline ToyCase toy_with(ToyDrafter drafter, SamplingParams sampling = {.temperature = 1.0f},
                        int length = 2) {
  return {"", 3, ToyModel{11, 3}, sampling, std::move(drafter), length};
}

inline const ToyModel kDraft{12, 3};

inline void sampled_chain_of_two(const Tokens& context, Sampler& sampler, Coins& coins,
                                 TokenTree& tree) {
  Tokens path;
  for (int node = 0; node < 2; ++node) {
    const std::vector<float> q = draft_row(kDraft, sampler, context, path);
    path.push_back(draw(coins, q));
    tree.add({.parent = node, .token = path.back(), .q_row = tree.q.add_dense(q)});
  }
}

}  // namespace coppice::test
