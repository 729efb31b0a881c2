// How likely a token is that is proposed because it came before in a like place: what the drafters
// that see only ids score their nodes with. The logistic form and its weights were fitted to
// SmolLM2's greedy answers to prompts that no experiment here uses.
//
//   constexpr RecurrencePrior kPrior = {.bias = -0.8f, ...};
//   hits.settle(job.tokens);
//   float score = kPrior(context, agree, disagree, hits.rate());
//   hits.expect(position, token);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace coppice {

/// P(accepted | parent accepted) of a token behind a context that was seen before.
struct RecurrencePrior {
  float bias, context, agree, disagree, hits;

  /// `context_length` tokens matched (at least 1); of the times they were seen, `seen` (at least 1)
  /// went on with this token and `otherwise` did not; `hit_rate` as HitHistory gives it.
  float operator()(int context_length, int seen, int otherwise, float hit_rate) const {
    const auto bits = [](int count, int most) {
      return std::log2(static_cast<float>(std::min(count, most)));
    };
    const float x = bias + context * bits(context_length, 32) + agree * bits(seen, 16) +
                    disagree * bits(otherwise + 1, 8) + hits * hit_rate;
    return 1.0f / (1.0f + std::exp(-x));
  }
};

/// How often a drafter's first guess came true lately in one sequence. A guess is compared with
/// what came whether or not it was verified, so a drafter whose drafts are cut still learns when to
/// return.
class HitHistory {
 public:
  /// The drafter would say that `token` comes at `position` of the sequence.
  void expect(size_t position, int32_t token) {
    position_ = position;
    token_ = token;
    waits_ = true;
  }
  /// Compares the last guess with the tokens that are certain now.
  void settle(std::span<const int32_t> tokens) {
    if (!waits_ || position_ >= tokens.size()) return;
    rate_ += kWeight * ((tokens[position_] == token_ ? 1.0f : 0.0f) - rate_);
    waits_ = false;
  }
  /// In 0..1, the latest guesses weighing most; 0.5 before the first.
  float rate() const { return rate_; }

 private:
  static constexpr float kWeight = 0.1f;
  size_t position_ = 0;
  int32_t token_ = 0;
  bool waits_ = false;
  float rate_ = 0.5f;
};

}  // namespace coppice
