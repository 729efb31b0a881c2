// See token_tree.h.
#include "core/token_tree.h"

#include <algorithm>
#include <functional>

#include "kernels/base/error.h"

namespace coppice {

float QRows::Row::probability(int32_t token) const {
  if (token < 0) return 0.0f;
  if (ids.empty())
    return static_cast<size_t>(token) < p.size() ? p[static_cast<size_t>(token)] : 0.0f;
  const auto at = std::lower_bound(ids.begin(), ids.end(), token);
  return at != ids.end() && *at == token ? p[static_cast<size_t>(at - ids.begin())] : 0.0f;
}

void QRows::clear() {
  entries_.clear();
  ids_.clear();
  p_.clear();
}

int QRows::add_dense(std::span<const float> p, bool without_replacement) {
  COPPICE_CHECK(!p.empty());
  entries_.push_back({p_.size(), p.size(), true, without_replacement, 0});
  p_.insert(p_.end(), p.begin(), p.end());
  return size() - 1;
}

int QRows::add_sparse(std::span<const int32_t> ids, std::span<const float> p,
                      bool without_replacement) {
  COPPICE_CHECK(ids.size() == p.size() && !ids.empty() && ids.front() >= 0);
  COPPICE_CHECK(std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end());
  entries_.push_back({p_.size(), p.size(), false, without_replacement, ids_.size()});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  p_.insert(p_.end(), p.begin(), p.end());
  return size() - 1;
}

QRows::Row QRows::row(int index) const {
  COPPICE_CHECK(index >= 0 && index < size());
  const Entry& entry = entries_[static_cast<size_t>(index)];
  Row row;
  row.p = std::span(p_).subspan(entry.first, entry.count);
  if (!entry.dense) row.ids = std::span(ids_).subspan(entry.first_id, entry.count);
  row.without_replacement = entry.without_replacement;
  return row;
}

void TokenTree::reset(int32_t root, int capacity, int most_depth) {
  COPPICE_CHECK(capacity >= 0 && most_depth >= 0);
  capacity_ = capacity;
  most_depth_ = most_depth;
  q.clear();
  token_.clear();
  parent_.clear();
  depth_.clear();
  role_.clear();
  q_row_.clear();
  score_.clear();
  source_.clear();
  first_child_.clear();
  last_child_.clear();
  next_sibling_.clear();
  renumbered_.clear();
  append({.parent = -1, .token = root});
}

int TokenTree::add(const TreeNode& node) {
  const int index = size();
  COPPICE_CHECK(node.parent >= 0 && node.parent < index);
  if (room() == 0 || depth(node.parent) >= most_depth_) return -1;
  COPPICE_CHECK(node.q_row >= kPointMass && node.q_row < q.size());
  const size_t parent = static_cast<size_t>(node.parent);
  COPPICE_CHECK(node.role == NodeRole::probe || role_[parent] == NodeRole::verify);
  COPPICE_CHECK(node.token >= 0);
  const bool drawn = node.q_row != kPointMass;
  COPPICE_CHECK(!drawn || q.row(node.q_row).probability(node.token) > 0.0f);
  if (node.role == NodeRole::verify && (!drawn || q.row(node.q_row).without_replacement)) {
    for (int c = first_child_[parent]; c >= 0; c = next_sibling_[static_cast<size_t>(c)]) {
      const size_t sibling = static_cast<size_t>(c);
      COPPICE_CHECK(token_[sibling] != node.token || q_row_[sibling] != node.q_row ||
                    role_[sibling] != NodeRole::verify);
    }
  }
  append(node);
  return index;
}

void TokenTree::append(const TreeNode& node) {
  const int index = size();
  token_.push_back(node.token);
  parent_.push_back(node.parent);
  depth_.push_back(node.parent < 0 ? 0 : depth(node.parent) + 1);
  role_.push_back(node.role);
  q_row_.push_back(node.q_row);
  score_.push_back(node.score);
  source_.push_back(node.source);
  first_child_.push_back(-1);
  last_child_.push_back(-1);
  next_sibling_.push_back(-1);
  if (node.parent >= 0) link(index);
}

// Hangs a node behind its earlier siblings.
void TokenTree::link(int node) {
  const auto parent = static_cast<size_t>(parent_[static_cast<size_t>(node)]);
  if (last_child_[parent] < 0) {
    first_child_[parent] = node;
  } else {
    next_sibling_[static_cast<size_t>(last_child_[parent])] = node;
  }
  last_child_[parent] = node;
}

void TokenTree::cut(std::span<const uint8_t> keep) {
  COPPICE_CHECK(static_cast<int>(keep.size()) == size() && keep[0] != 0);
  const int before = size();
  // A kept node moves to the front, never behind a node that is still to be read.
  std::vector<int>& moved_to = renumbered_;
  moved_to.resize(static_cast<size_t>(before));
  int kept = 0;
  for (int i = 0; i < before; ++i) {
    const auto from = static_cast<size_t>(i);
    moved_to[from] = -1;
    if (keep[from] == 0) continue;
    const auto to = static_cast<size_t>(kept);
    if (i > 0) {
      parent_[to] = moved_to[static_cast<size_t>(parent_[from])];
      COPPICE_CHECK(parent_[to] >= 0);
    }
    token_[to] = token_[from];
    depth_[to] = depth_[from];
    role_[to] = role_[from];
    q_row_[to] = q_row_[from];
    score_[to] = score_[from];
    source_[to] = source_[from];
    moved_to[from] = kept++;
  }
  const auto size_now = static_cast<size_t>(kept);
  for (auto* column : {&token_, &parent_, &depth_, &q_row_}) column->resize(size_now);
  role_.resize(size_now);
  score_.resize(size_now);
  source_.resize(size_now);
  for (auto* links : {&first_child_, &last_child_, &next_sibling_}) links->assign(size_now, -1);
  for (int i = 1; i < kept; ++i) link(i);
}

int TokenTree::find_child(int parent, int32_t token) const {
  for (int c = first_child(parent); c >= 0; c = next_sibling(c)) {
    if (token_[static_cast<size_t>(c)] == token &&
        role_[static_cast<size_t>(c)] == NodeRole::verify) {
      return c;
    }
  }
  return -1;
}

void TokenTree::path_tokens(int i, std::vector<int32_t>& out) const {
  out.resize(static_cast<size_t>(depth(i)));
  for (int at = i; at > 0; at = parent(at)) out[static_cast<size_t>(depth(at)) - 1] = token(at);
}

}  // namespace coppice
