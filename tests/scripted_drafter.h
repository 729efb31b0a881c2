// A drafter that does what a test tells it, so that every pattern of accepts and rejects can be
// forced.
//
//   ScriptedDrafter drafter(4, [&](DraftJob& job) { job.tree->add({.parent = 0, .token = 7}); });
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "decoding/drafter.h"

namespace coppice::test {

class ScriptedDrafter : public Drafter {
 public:
  using Script = std::function<void(DraftJob&)>;
  ScriptedDrafter(int most_nodes, Script script)
      : needs_{.most_nodes = most_nodes}, script_(std::move(script)) {}

  Needs needs() const override { return needs_; }
  void observe(std::span<const Observation> observations) override {
    if (on_observe) {
      for (const Observation& seen : observations) on_observe(seen);
    }
  }
  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) script_(job);
  }
  void forget(SeqId sequence, Reason reason) override { forgotten.push_back({sequence, reason}); }

  std::function<void(const Observation&)> on_observe;
  std::vector<std::pair<SeqId, Reason>> forgotten;

 private:
  Needs needs_;
  Script script_;
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
