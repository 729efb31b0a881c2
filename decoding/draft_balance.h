// Whether drafting pays as a whole: what it won and lost lately, its own time included. A drafter
// that costs more than it brings is not asked for a while, and then tried again; each time it fails
// the rest is longer, so that what it costs in the long run is bounded.
//
//   if (!balance.rests()) propose();
//   balance.learn(gain);  // once a step
#pragma once

#include <algorithm>
#include <cmath>

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
    gain = std::max(gain, kMostLost);
    sum_ = kMemory * sum_ + gain;
    squares_ = kMemory * squares_ + gain * gain;
    if (sum_ > 1.0) rest_ = kShortestRest;
    if (sum_ > -kSure * std::sqrt(squares_)) return;  // may be chance
    rest_left_ = rest_;
    rest_ = std::min(2 * rest_, kLongestRest);
    sum_ = 0.0;
    squares_ = kSquaresAtFirst;
  }

 private:
  static constexpr double kMemory = 0.99;         // a step: drafts come in bursts, so look far back
  static constexpr double kSure = 1.5;            // standard deviations of the sum
  static constexpr double kMostLost = -0.5;       // a drafter that reads a prompt pays once for all
  static constexpr double kSquaresAtFirst = 2.0;  // a few bad steps in a row prove nothing
  static constexpr int kShortestRest = 64, kLongestRest = 1024;  // steps

  double sum_ = 0.0, squares_ = kSquaresAtFirst;
  int rest_ = kShortestRest, rest_left_ = 0;
};

}  // namespace coppice
