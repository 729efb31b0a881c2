// The scripted drafter with ears: a test sees what it was shown and what it had to forget.
//
//   ScriptedDrafter drafter(4, [&](DraftJob& job) { job.tree->add({.parent = 0, .token = 7}); });
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "drafters/scripted.h"

namespace coppice::test {

class ScriptedDrafter : public Scripted {
 public:
  using Scripted::Scripted;

  void observe(std::span<const Observation> observations) override {
    if (on_observe) {
      for (const Observation& seen : observations) on_observe(seen);
    }
  }
  void forget(SeqId sequence, Reason reason) override {
    Scripted::forget(sequence, reason);
    forgotten.push_back({sequence, reason});
  }

  std::function<void(const Observation&)> on_observe;
  std::vector<std::pair<SeqId, Reason>> forgotten;
};

/// Adds a chain of the tokens; stops where the tree is full.
inline void add_chain(TokenTree& tree, std::span<const int32_t> tokens) {
  int node = 0;
  for (int32_t token : tokens) {
    node = tree.add({.parent = node, .token = token});
    if (node < 0) return;
  }
}

}  // namespace coppice::test
