// From logits to the distribution a token is drawn from. One pipeline for the target and for every
// drafter that samples: penalties and bias, then temperature, top-k, top-p, min-p. A node of a tree
// sees the penalties of its own path.
//
//   Sampler sampler(params, vocabulary, masked);
//   int32_t next = sampler.coupled(logits, {history, path}, position);
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace coppice {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int top_k = 0;             // 0: off; larger than the vocabulary: off
  float top_p = 1.0f;        // (0, 1]; the smallest set of most probable tokens that reaches it
  float min_p = 0.0f;        // [0, 1]; relative to the largest probability
  float repetition_penalty = 1.0f;  // > 0; positive logits divided, negative multiplied (CTRL 2019)
  float presence_penalty = 0.0f;    // subtracted once for a token that occurs in the window
  float frequency_penalty = 0.0f;   // subtracted once for each occurrence
  int penalty_window = 64;          // last tokens of prompt and answer the penalties look at
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  uint32_t request = 0;  // the caller's own number: same seed and request, same text
};

/// Throws Error naming the parameter and its range.
void validate(const SamplingParams& params, int vocabulary);

/// The tokens before the one to be drawn: those that are certain, then a path of the tree.
struct TokenContext {
  std::span<const int32_t> history;
  std::span<const int32_t> path;
};

/// Draws for one sequence. `vocabulary` is the number of real tokens: ids beyond it, and `masked`
/// ones, are never drawn. Ties go to the lowest id. Methods throw Failure when the logits hold a
/// NaN or no token is left. Reuses its own scratch memory: one object a thread.
class Sampler {
 public:
  Sampler(const SamplingParams& params, int vocabulary, std::span<const int32_t> masked);

  const SamplingParams& params() const { return params_; }
  /// The most probable token: what `greedy` emits.
  int32_t argmax(std::span<const float> logits, TokenContext context);
  /// argmax(log p + Gumbel noise addressed by (seed, request, position, token)): what the baseline
  /// and `coupled` emit. At temperature 0 it is argmax().
  int32_t coupled(std::span<const float> logits, TokenContext context, int position);
  /// The distribution after every warp, dense over `vocabulary` ids, valid until the next call. At
  /// temperature 0 it is one at argmax().
  std::span<const float> probabilities(std::span<const float> logits, TokenContext context);

 private:
  SamplingParams params_;
  int vocabulary_;
  std::vector<int32_t> masked_;
  std::vector<float> scratch_;
  std::vector<int32_t> order_;
};

struct TokenLogProbability {
  int32_t token = 0;
  float log_probability = 0.0f;
  std::vector<std::pair<int32_t, float>> most_likely;  // alternatives, most likely first
};
/// log softmax of the logits as the model gave them, before any warp, at `token` and at the
/// `alternatives` most likely tokens.
TokenLogProbability log_probability(std::span<const float> logits, int32_t token, int alternatives);

}  // namespace coppice
