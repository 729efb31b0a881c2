// The oracle knows what comes next, from recorded answers: every token that it proposes is
// accepted, so that it bounds from above what any drafter of that depth can reach. For a text that
// was not recorded it proposes nothing.
//
//   coppice generate --model smollm2 --json --prompt "Hello" > answer.jsonl
//   coppice generate --model smollm2 --method oracle --set answers=answer.jsonl --prompt "Hello"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decoding/registry.h"

namespace coppice {

struct OracleOptions {
  int depth = 4;
  std::string answers;

  template <class Visitor>
  void visit(Visitor& v) {
    v("depth", depth, "tokens proposed, and accepted, a step", Range{1, 256});
    v("answers", answers,
      "file with lines of JSON that hold prompt_ids and ids: prompts.jsonl of a run, or what "
      "generate --json prints; empty: the target drafts for itself, and that time counts");
  }
};

class Oracle : public Drafter {
 public:
  /// Throws Error when the file cannot be read or holds no answer.
  explicit Oracle(const OracleOptions& options);
  Needs needs() const override { return {.most_nodes = depth_}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  const std::vector<int32_t>* find(SeqId sequence, std::span<const int32_t> tokens);

  int depth_;
  std::vector<std::vector<int32_t>> texts_;  // prompt and answer
  std::vector<size_t> followed_;             // by SeqId: the text that it is so far
};

}  // namespace coppice
