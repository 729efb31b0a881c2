// What the drafters that see only ids build their scores from: a logistic prior, and how often the
// drafter's first guess came true lately in this sequence. A guess is compared with what came
// whether or not it was verified, so a drafter whose drafts are cut still learns when to return.
//
//   hits.settle(job.tokens);
//   score = logistic(-0.8f + 0.9f * hits.rate() + ...);
//   hits.expect(position, token);
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

namespace coppice {

inline float logistic(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

class HitHistory {
 public:
  /// The drafter would say that `token` comes at `position` of the sequence.
  void expect(int position, int32_t token) {
    position_ = position;
    token_ = token;
  }
  /// Compares the last guess with the tokens that are certain now.
  void settle(std::span<const int32_t> tokens) {
    if (position_ < 0 || static_cast<size_t>(position_) >= tokens.size()) return;
    const bool hit = tokens[static_cast<size_t>(position_)] == token_;
    rate_ += kWeight * ((hit ? 1.0f : 0.0f) - rate_);
    position_ = -1;
  }
  /// In 0..1, the latest guesses weighing most; 0.5 before the first.
  float rate() const { return rate_; }

 private:
  static constexpr float kWeight = 0.1f;
  int position_ = -1;  // -1: no guess waits
  int32_t token_ = 0;
  float rate_ = 0.5f;
};

}  // namespace coppice
