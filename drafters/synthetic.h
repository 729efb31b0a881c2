// A chain of filler tokens, to be judged by the rule `forced`, which accepts by coin: what a
// drafter with a given acceptance would gain on this machine, before there is one. Its text means
// nothing, and every table marks it invalid.
//
//   coppice bench my.toml    # method = "synthetic", forced.acceptance = [0.8, 0.7, 0.6]
#pragma once

#include "decoding/registry.h"

namespace coppice {

struct SyntheticOptions {
  int draft_length = 4;

  template <class Visitor>
  void visit(Visitor& v) {
    v("draft_length", draft_length, "tokens proposed a step", Range{1, 256});
  }
};

class Synthetic : public Drafter {
 public:
  explicit Synthetic(const SyntheticOptions& options) : options_(options) {}

  Needs needs() const override { return {.most_nodes = options_.draft_length}; }

  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      int node = 0;
      for (int depth = 1; depth <= options_.draft_length && node >= 0; ++depth) {
        // What the coins say is the rule's own: scores only tell depths apart, for the budget to
        // learn.
        const float score = 1.0f / static_cast<float>(1 + depth);
        node = job.tree->add({.parent = node, .token = job.tokens.back(), .score = score});
      }
    }
  }
  void observe(std::span<const Observation>) override {}
  void forget(SeqId, Reason) override {}

 private:
  SyntheticOptions options_;
};

}  // namespace coppice
