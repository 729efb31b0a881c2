// Whether drafting pays as a whole: what it won and lost lately, its own time included. A drafter
// that costs more than it brings is not asked for a while, and then tried again; each time it fails
// the rest is longer, so that what it costs in the long run is bounded.
//
//   if (!balance.rests()) propose();
//   balance.learn(gain);  // once a step
#pragma once

#include <algorithm>

namespace coppice {

class DraftBalance {
 public:
  /// Whether this step is to be done without drafts.
  bool rests() const { return rest_left_ > 0; }

  /// After a step: tokens that drafts won, minus the tokens that their time would have brought
  /// without them, of each sequence. Ignored at rest.
  void learn(double gain) {
    if (rests()) {
      --rest_left_;
      return;
    }
    balance_ = kMemory * balance_ + (1.0 - kMemory) * std::max(gain, kMostLost);
    if (balance_ > kClear) rest_ = kShortestRest;
    if (balance_ > -kClear) return;
    rest_left_ = rest_;
    rest_ = std::min(2 * rest_, kLongestRest);
    balance_ = 0.0;
  }

 private:
  static constexpr double kMemory = 0.99;    // a step: drafts come in bursts, so look far back
  static constexpr double kClear = 0.01;     // of a token a step: less may be chance
  static constexpr double kMostLost = -0.5;  // a draft model that reads a prompt pays once for all
  static constexpr int kShortestRest = 64, kLongestRest = 1024;  // steps

  double balance_ = 0.0;
  int rest_ = kShortestRest, rest_left_ = 0;
};

}  // namespace coppice
