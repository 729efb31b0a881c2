// Token recycling: the target's most likely tokens behind every verified node, accepted or not, are
// kept in an adjacency matrix, and a static tree is filled from it breadth first. Source: Luo 2024,
// "Turning Trash into Treasure: Accelerating Inference of LLMs with Token Recycling", section 3
// (k = 8, the authors' tree of 80 nodes). The matrix starts empty, not at token 0: a child that was
// never seen is left out. A prompt's tokens enter as they are verified: but for the last, their
// logits are not computed.
//
//   coppice generate --method token_recycling ...
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "decoding/registry.h"

namespace coppice {

struct TokenRecyclingOptions {
  int max_nodes = 80;

  template <class Visitor>
  void visit(Visitor& v) {
    v("max_nodes", max_nodes, "nodes of the tree that are used, the likeliest first", Range{1, 80});
  }
};

class TokenRecycling : public Drafter {
 public:
  static constexpr int kCandidates = 8;  // k

  TokenRecycling(const TokenRecyclingOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.top_k = kCandidates, .most_nodes = options_.max_nodes}; }
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  /// The matrix belongs to no sequence: it stays.
  void forget(SeqId, Reason) override {}

 private:
  /// What the target said behind a token when it was verified last: (id, its probability among
  /// these), most likely first; id -1: never seen.
  struct Candidate {
    int32_t id = -1;
    float p = 0;
  };
  using Row = std::array<Candidate, kCandidates>;

  TokenRecyclingOptions options_;
  std::vector<Row> matrix_;  // (vocabulary, k): 64 bytes a token of the vocabulary
  std::vector<int> place_;   // of each node of the tree by likelihood, node 0 first
  std::vector<int> index_;   // in the job's tree, of each node of the static one
};

}  // namespace coppice
