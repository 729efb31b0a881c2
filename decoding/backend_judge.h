// Asks the backend to judge a step's trees where their logits are: fills an op Judge a sequence,
// and reads the verdicts, a few ids a tree, in place of the logits.
//
//   judge.clear();
//   judge.add(rule, sampler, tree, ...);   // once a sequence, or skip()
//   batch.judges = judge.ops();
//   model.forward(batch, ...);
//   if (!judge.read(0, verdict)) ...judge on the host...
#pragma once

#include <span>
#include <vector>

#include "core/sampling.h"
#include "core/token_tree.h"
#include "decoding/acceptance.h"
#include "kernels/backend.h"

namespace coppice {

class BackendJudge {
 public:
  void clear();
  /// A tree whose node i has its logits in row logit_row[node_row[i]]; `history` ends with node 0's
  /// token. What is given must stay until the forward has run. False: skipped, the rule is
  /// none that a backend knows.
  bool add(const AcceptanceRule& rule, const Sampler& sampler, const TokenTree& tree,
           std::span<const int> node_row, std::span<const int> logit_row,
           std::span<const int32_t> history);
  /// A sequence that is judged elsewhere, or not at all.
  void skip() { op_of_.push_back(-1); }
  /// Those added; valid until the next change.
  std::span<const Judge> ops();
  /// Of the sequence added or skipped as number `index`. False, the verdict left as it was: it was
  /// not added, or a row of logits held NaN or +infinity or left no token.
  bool read(int index, Verdict& verdict) const;

 private:
  struct Part {
    size_t node, proposal, q, id, verdict;  // first of its own in the arrays
  };
  std::vector<int> op_of_;  // by sequence; -1: skipped
  std::vector<Judge> ops_;
  std::vector<Part> parts_;
  std::vector<JudgeNode> nodes_;
  std::vector<JudgeProposal> proposals_;
  std::vector<float> q_;
  std::vector<int32_t> q_ids_;
  std::vector<int32_t> verdicts_;
};

}  // namespace coppice
