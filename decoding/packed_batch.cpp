// See packed_batch.h.
#include "decoding/packed_batch.h"

namespace coppice {

void PackedBatch::clear() {
  token_.clear();
  parent_.clear();
  logit_rows_.clear();
  sequences_.clear();
  node_row_.clear();
  node_first_.assign(1, 0);
  logit_row_.clear();
}

void PackedBatch::add(std::span<const int32_t> trunk, const TokenTree* tree, int committed,
                      std::span<const int32_t> pages, bool wants_logits) {
  const size_t first = token_.size();
  for (size_t i = 0; i < trunk.size(); ++i) {
    token_.push_back(trunk[i]);
    parent_.push_back(static_cast<int>(i) - 1);
  }
  const int root = static_cast<int>(trunk.size()) - 1;
  const size_t nodes = node_row_.size();
  node_row_.push_back(root);
  for (int node = 1; tree != nullptr && node < tree->size(); ++node) {
    const int parent = node_row_[nodes + static_cast<size_t>(tree->parent(node))];
    // Same parent row and same token: the same keys, the same logits.
    int row = root + 1;
    const int end = static_cast<int>(token_.size() - first);
    while (row < end && (parent_[first + static_cast<size_t>(row)] != parent ||
                         token_[first + static_cast<size_t>(row)] != tree->token(node))) {
      ++row;
    }
    if (row == end) {
      token_.push_back(tree->token(node));
      parent_.push_back(parent);
    }
    node_row_.push_back(row);
  }
  const int count = static_cast<int>(token_.size() - first);
  end_sequence({static_cast<int>(first), count, committed, pages}, wants_logits ? root : count);
}

void PackedBatch::add_rows(std::span<const int32_t> tokens, std::span<const int32_t> parent,
                           std::span<const int32_t> written, int committed,
                           std::span<const int32_t> pages, int first_wanted) {
  const int first = static_cast<int>(token_.size());
  token_.insert(token_.end(), tokens.begin(), tokens.end());
  parent_.insert(parent_.end(), parent.begin(), parent.end());
  end_sequence({first, static_cast<int>(tokens.size()), committed, pages, written}, first_wanted);
}

void PackedBatch::end_sequence(const SequenceRows& rows, int first_wanted) {
  node_first_.push_back(static_cast<int>(node_row_.size()));
  for (int row = 0; row < rows.count; ++row) {
    const bool wanted = row >= first_wanted;
    logit_row_.push_back(wanted ? static_cast<int>(logit_rows_.size()) : -1);
    if (wanted) logit_rows_.push_back(rows.first + row);
  }
  sequences_.push_back(rows);
}

std::span<const int> PackedBatch::node_row(int sequence) const {
  const auto first = static_cast<size_t>(node_first_[static_cast<size_t>(sequence)]);
  const auto last = static_cast<size_t>(node_first_[static_cast<size_t>(sequence) + 1]);
  return std::span(node_row_).subspan(first, last - first);
}

std::span<const int> PackedBatch::logit_row(int sequence) const {
  const SequenceRows& rows = sequences_[static_cast<size_t>(sequence)];
  return std::span(logit_row_)
      .subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count));
}

ForwardBatch PackedBatch::batch() const {
  ForwardBatch batch;
  batch.token = token_;
  batch.parent = parent_;
  batch.sequences = sequences_;
  batch.logit_rows = logit_rows_;
  return batch;
}

}  // namespace coppice
