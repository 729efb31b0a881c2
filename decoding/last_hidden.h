// The target's hidden state at the last token it has read, of every sequence: what heads that
// predict several tokens at once start from.
//
//   hidden.observe(observations, dim);
//   const float* h = hidden.find(job);
#pragma once

#include <vector>

#include "decoding/drafter.h"

namespace coppice {

class LastHidden {
 public:
  /// Keeps tap 0 of each sequence's last certain row.
  void observe(std::span<const Observation> observations) {
    for (const Observation& seen : observations) {
      if (seen.kept_rows.empty()) continue;
      const auto at = static_cast<size_t>(seen.sequence);
      if (at >= states_.size()) states_.resize(at + 1);
      const float* tap = seen.tap(0, seen.kept_rows.back());
      states_[at].value.assign(tap, tap + seen.output->dim);
      states_[at].position = seen.first_position + static_cast<int>(seen.kept_rows.size()) - 1;
    }
  }
  /// (dim): the state that gave the job's last token; null when it was not seen.
  const float* find(const DraftJob& job) const {
    const auto at = static_cast<size_t>(job.sequence);
    const int position = static_cast<int>(job.tokens.size()) - 2;
    if (position < 0 || at >= states_.size() || states_[at].position != position) return nullptr;
    return states_[at].value.data();
  }
  void forget(SeqId sequence) {
    if (static_cast<size_t>(sequence) < states_.size()) states_[static_cast<size_t>(sequence)] = {};
  }

 private:
  struct State {
    int position = -1;
    std::vector<float> value;
  };
  std::vector<State> states_;  // by SeqId
};

}  // namespace coppice
