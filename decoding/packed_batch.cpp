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
  const int first = static_cast<int>(token_.size());
  for (size_t i = 0; i < trunk.size(); ++i) {
    token_.push_back(trunk[i]);
    parent_.push_back(i == 0 ? -1 : first + static_cast<int>(i) - 1);
  }
  const int root = first + static_cast<int>(trunk.size()) - 1;
  const size_t nodes = node_row_.size();
  node_row_.push_back(root - first);
  for (int node = 1; tree != nullptr && node < tree->size(); ++node) {
    const int parent = first + node_row_[nodes + static_cast<size_t>(tree->parent(node))];
    // Same parent row and same token: the same keys, the same logits.
    int row = root + 1;
    const int end = static_cast<int>(token_.size());
    while (row < end && (parent_[static_cast<size_t>(row)] != parent ||
                         token_[static_cast<size_t>(row)] != tree->token(node))) {
      ++row;
    }
    if (row == end) {
      token_.push_back(tree->token(node));
      parent_.push_back(parent);
    }
    node_row_.push_back(row - first);
  }
  node_first_.push_back(static_cast<int>(node_row_.size()));
  for (int row = first; row < static_cast<int>(token_.size()); ++row) {
    const bool wanted = wants_logits && row >= root;
    logit_row_.push_back(wanted ? static_cast<int>(logit_rows_.size()) : -1);
    if (wanted) logit_rows_.push_back(row);
  }
  sequences_.push_back({first, static_cast<int>(token_.size()) - first, committed, pages});
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
