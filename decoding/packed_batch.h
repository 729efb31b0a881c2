// Packs trunks and trees of several sequences into one ragged forward batch. Nodes that stand for
// the same tokens (repeated siblings, and what hangs alike under them) share one row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"
#include "core/token_tree.h"

namespace coppice {

class PackedBatch {
 public:
  void clear();
  /// Rows of one sequence: the trunk, then the tree under its last token (null: none). Logits are
  /// wanted at every node, node 0 included, when `wants_logits`.
  void add(std::span<const int32_t> trunk, const TokenTree* tree, int committed,
           std::span<const int32_t> pages, bool wants_logits);

  /// Rows that follow those already `written` in the sequence's tail, one a token; `parent` as in
  /// ForwardBatch. Logits are wanted at the rows from `first_wanted` on.
  void add_rows(std::span<const int32_t> tokens, std::span<const int32_t> parent,
                std::span<const int32_t> written, int committed, std::span<const int32_t> pages,
                int first_wanted);

  int sequences() const { return static_cast<int>(sequences_.size()); }
  const SequenceRows& rows(int sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  /// Row of each node, within the sequence; empty after add_rows().
  std::span<const int> node_row(int sequence) const;
  /// Logit row of each row of the sequence, -1: none.
  std::span<const int> logit_row(int sequence) const;
  ForwardBatch batch() const;

 private:
  void end_sequence(const SequenceRows& rows, int first_wanted);

  std::vector<int32_t> token_, parent_, logit_rows_;
  std::vector<SequenceRows> sequences_;
  std::vector<int> node_row_, node_first_, logit_row_;
};

}  // namespace coppice
