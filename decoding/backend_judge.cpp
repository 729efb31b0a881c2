// See backend_judge.h.
#include "decoding/backend_judge.h"

#include "kernels/base/error.h"

namespace coppice {

void BackendJudge::clear() {
  op_of_.clear();
  ops_.clear();
  parts_.clear();
  nodes_.clear();
  proposals_.clear();
  q_.clear();
  q_ids_.clear();
  verdicts_.clear();
}

bool BackendJudge::add(const AcceptanceRule& rule, const Sampler& sampler, const TokenTree& tree,
                       std::span<const int> node_row, std::span<const int> logit_row,
                       std::span<const int32_t> history) {
  const auto walk = walk_of(rule, sampler.params().temperature);
  if (!walk) {
    skip();
    return false;
  }
  Judge op;
  op.rule = *walk;
  sampler.describe(history, op);
  op.root_position = static_cast<int>(history.size()) - 1;
  op.nodes = tree.size();
  op.proposals = tree.q.size();
  parts_.push_back({nodes_.size(), proposals_.size(), q_.size(), q_ids_.size(), verdicts_.size()});
  for (int node = 0; node < tree.size(); ++node) {
    COPPICE_CHECK(tree.token(node) < op.vocabulary || node == 0);
    const int row = node_row[static_cast<size_t>(node)];
    nodes_.push_back({tree.token(node), tree.parent(node), tree.depth(node), tree.first_child(node),
                      tree.next_sibling(node), logit_row[static_cast<size_t>(row)],
                      tree.q_row(node), tree.role(node) == NodeRole::verify ? 1 : 0});
  }
  const Part& own = parts_.back();
  for (int index = 0; index < tree.q.size(); ++index) {
    const QRows::Row row = tree.q.row(index);
    proposals_.push_back({static_cast<int32_t>(q_.size() - own.q),
                          row.ids.empty() ? -1 : static_cast<int32_t>(q_ids_.size() - own.id),
                          static_cast<int32_t>(row.p.size()), row.without_replacement ? 1 : 0});
    q_.insert(q_.end(), row.p.begin(), row.p.end());
    q_ids_.insert(q_ids_.end(), row.ids.begin(), row.ids.end());
  }
  op.q_values = static_cast<int>(q_.size() - own.q);
  op.q_tokens = static_cast<int>(q_ids_.size() - own.id);
  verdicts_.resize(verdicts_.size() + static_cast<size_t>(op.nodes) + 1);
  op_of_.push_back(static_cast<int>(ops_.size()));
  ops_.push_back(op);
  return true;
}

std::span<const Judge> BackendJudge::ops() {
  for (size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].node = nodes_.data() + parts_[i].node;
    ops_[i].proposal = proposals_.data() + parts_[i].proposal;
    ops_[i].q = q_.data() + parts_[i].q;
    ops_[i].q_ids = q_ids_.data() + parts_[i].id;
    ops_[i].verdict = verdicts_.data() + parts_[i].verdict;
  }
  return ops_;
}

bool BackendJudge::read(int index, Verdict& verdict) const {
  const int op =
      static_cast<size_t>(index) < op_of_.size() ? op_of_[static_cast<size_t>(index)] : -1;
  if (op < 0) return false;
  const int32_t* found = verdicts_.data() + parts_[static_cast<size_t>(op)].verdict;
  if (found[0] < 0) return false;
  verdict.token = found[1];
  verdict.path.assign(found + 2, found + 2 + found[0]);
  return true;
}

}  // namespace coppice
