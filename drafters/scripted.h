// Proposes what a script says, step by step: to repeat a case, or to force every pattern of accepts
// and rejects in a test.
//
// A step is written as paths of token ids from node 0, separated by |, that share their common
// beginnings; ? before an id makes a probe, and everything behind it: "17 4 9 | 17 5 | ?3 8". Steps
// are counted for each sequence from its first draft; an empty one, and what lies behind the last,
// drafts nothing.
//
//   coppice explain --method scripted --set 'steps=["17 4 9", "", "5 | 6"]' ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "decoding/registry.h"

namespace coppice {

struct ScriptedOptions {
  std::vector<std::string> steps;
  std::string file;

  template <class Visitor>
  void visit(Visitor& v) {
    v("steps", steps, "what each step proposes");
    v("file", file, "the same from a file, a step a line");
  }
};

class Scripted : public Drafter {
 public:
  using Script = std::function<void(DraftJob&)>;
  Scripted(int most_nodes, Script script) : most_nodes_(most_nodes), script_(std::move(script)) {}
  /// Throws Error naming the step that is not written as above.
  Scripted(const ScriptedOptions& options, int vocabulary);
  Scripted(const Scripted&) = delete;  // its script is its own

  Needs needs() const override { return {.most_nodes = most_nodes_}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) script_(job);
  }
  void forget(SeqId sequence, Reason reason) override;

 private:
  int most_nodes_ = 0;
  Script script_;
  std::vector<size_t> done_;  // by SeqId: steps proposed
};

}  // namespace coppice
