// From logits to the distribution a token is drawn from. One pipeline for the target and for every
// drafter that samples: penalties and bias, then temperature, top-k, top-p, min-p, as defined in
// kernels/shared/warp.h. A node of a tree sees the penalties of its own path.
//
//   Sampler sampler(params, vocabulary, masked);
//   int32_t next = sampler.coupled(logits, {history, path}, position);
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/shared/noise.h"

namespace coppice {

struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int top_k = 0;             // 0: off; larger than the vocabulary: off
  float top_p = 1.0f;        // [0, 1]; the smallest set of most probable tokens that reaches it
  float min_p = 0.0f;        // [0, 1]; relative to the largest probability
  float repetition_penalty = 1.0f;  // > 0; positive logits divided, negative multiplied (CTRL 2019)
  float presence_penalty = 0.0f;    // subtracted once for a token that occurs in the window
  float frequency_penalty = 0.0f;   // subtracted once for each occurrence
  int penalty_window = 64;          // last tokens of prompt and answer the penalties look at
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // added; -infinity forbids the token
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

/// log softmax of logits as the model gave them, before any warp.
struct RawLogProbabilities {
  float token = 0.0f;                                  // of the token asked for
  std::vector<std::pair<int32_t, float>> most_likely;  // likeliest first, equals by lowest id
};
/// `alternatives` may exceed the vocabulary. Throws Failure when the logits hold a NaN or
/// +infinity.
RawLogProbabilities raw_log_probabilities(std::span<const float> logits, int32_t token,
                                          int alternatives);

/// A token that a drafter may propose without chance, and its estimate that the target agrees.
struct RankedToken {
  int32_t token = 0;
  float score = 0.0f;  // in 0..1
};

/// Draws for one sequence. `vocabulary` is the number of real tokens: ids beyond it, and `masked`
/// ones, are never drawn. Ties go to the lowest id. A row has at least `vocabulary` logits and is
/// never written to. Methods that draw throw Failure when it holds a NaN or +infinity, or when no
/// token is left. Reuses its own scratch memory: one object a thread.
class Sampler {
 public:
  /// Throws Error as validate() does.
  Sampler(const SamplingParams& params, int vocabulary, std::span<const int32_t> masked);

  const SamplingParams& params() const { return params_; }
  int vocabulary() const { return vocabulary_; }
  NoiseKey noise_key() const { return {params_.seed, params_.request}; }
  /// Fills in the warps, the noise's key and the masks; they stay this object's. Penalties look at
  /// `history`, which ends with node 0's token and outlives the op.
  void describe(std::span<const int32_t> history, Judge& op) const;
  /// The logits of the real tokens after masks, penalties and bias, before any filter; valid until
  /// the next call, and as long as `logits`.
  std::span<const float> scores(std::span<const float> logits, TokenContext context);
  /// The most probable token: what `greedy` emits.
  int32_t argmax(std::span<const float> logits, TokenContext context);
  /// argmax(log p + Gumbel noise addressed by (seed, request, position, token)): what the baseline
  /// and `coupled` emit. `position` is the drawn token's own. At temperature 0 it is argmax().
  int32_t coupled(std::span<const float> logits, TokenContext context, int position);
  /// The distribution after every warp, dense over `vocabulary` ids, valid until the next call. At
  /// temperature 0 it is one at argmax().
  std::span<const float> probabilities(std::span<const float> logits, TokenContext context);
  /// The `count` most probable tokens, or as many as have weight, best first. A score is the
  /// token's probability after every warp, at temperature 0 that of the processed logits' softmax.
  void rank(std::span<const float> logits, TokenContext context, int count,
            std::vector<RankedToken>& ranked);
  /// What coupled() would emit, then the `count` - 1 runners-up among the likeliest tokens by the
  /// same noisy score. A score is the softmax of the noisy scores over these and one more: near one
  /// when the winner is far ahead. At temperature 0 it is rank().
  void rank_coupled(std::span<const float> logits, TokenContext context, int position, int count,
                    std::vector<RankedToken>& ranked);
  /// A drafter's own draw from its distribution (probabilities(), or weights that need not sum to
  /// one: without replacement, set what was drawn to 0). `node` is the index the token will have in
  /// its tree, so that no two draws share noise. -1: nothing has weight.
  int32_t draw_draft(std::span<const float> q, int root_position, int depth, int node) const;
  /// Adds `first` to the node numbers of draw_draft(): several drafters that grow trees for one
  /// step, each numbering its own nodes from 0, must not share noise.
  void number_drafts_from(uint32_t first) { first_draft_ = first; }

 private:
  void apply_penalties(TokenContext context);
  uint64_t select(std::span<const float> row);
  void cut_nucleus(std::span<const float> row, uint64_t total);

  SamplingParams params_;
  int vocabulary_;
  uint32_t first_draft_ = 0;
  double inverse_temperature_ = 0.0;  // unused at temperature 0
  bool penalises_ = false;
  bool filters_ = false;  // some of top-k, top-p, min-p is on
  std::vector<int32_t> masked_;
  std::vector<JudgeBias> bias_;
  std::vector<float> row_;       // scores(), where they differ from the logits
  std::vector<int32_t> window_;  // tokens that penalties look at, sorted
  std::vector<double> weight_;   // by token id
  std::vector<int32_t> kept_;    // tokens that every filter keeps
  std::vector<float> value_;     // of the top-k
  std::vector<float> p_;
};

}  // namespace coppice
