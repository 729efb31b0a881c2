// What a sequential drafter has measured of itself, to ask before it drafts on whether that pays:
// how long a round of drafting takes, and how often its tokens follow when what is above them did.
// Averages alone: nothing here depends on a token that is still to be drawn.
//
//   while (pace.pays(job, reach, depth)) { draft a round; pace.learn(seconds, follow); }
#pragma once

#include "decoding/drafter.h"

namespace coppice {

class DraftPace {
 public:
  /// Whether another round pays for a job whose tree has `depth` levels, the deepest of which is
  /// reached with probability `reach`. Without a price it always does.
  bool pays(const DraftJob& job, double reach, int depth) const {
    return job.price == nullptr || job.price->pays(reach * follow_, depth, seconds_);
  }
  /// Seconds a round takes for one sequence; 0 before the first.
  double seconds() const { return seconds_; }
  /// After a round: what it took a sequence, and the part of `reach` that its tokens keep.
  void learn(double seconds, double follow) {
    seconds_ = seconds_ == 0 ? seconds : kMemory * seconds_ + (1.0 - kMemory) * seconds;
    follow_ = kMemory * follow_ + (1.0 - kMemory) * follow;
  }

 private:
  static constexpr double kMemory = 0.95;
  double seconds_ = 0.0;
  double follow_ = 0.8;
};

/// What a node's score is worth: as the engine has learnt it, or as it stands.
inline double acceptance_of(const DraftJob& job, float score) {
  return job.price != nullptr ? job.price->acceptance(score) : double{score};
}

}  // namespace coppice
