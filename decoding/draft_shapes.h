// The shapes of a draft model's tree. A static shape is decided before anything is drawn, so that
// every rule bears it; a dynamic one follows the draft model's confidence, so that its nodes are
// point masses. Sources: SpecInfer (Miao 2024), section 3, expansion configuration; EAGLE-2 (Li
// 2024), section 4.1 expansion and 4.2 reranking.
//
//   TreeShape shape = TreeShape::fixed({3, 2, 1});   // 3 children, 2 under each, then 1
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sampling.h"
#include "core/token_tree.h"

namespace coppice {

/// A static tree: nodes in level order, siblings beside each other, node 0 the root.
struct TreeShape {
  std::vector<int> parent = {-1};
  std::vector<int> depth = {0};

  static TreeShape chain(int nodes);
  /// Every node at depth d has branching[d] children.
  static TreeShape fixed(std::span<const int> branching);
  /// Adds a child under `above`, which is the last node added or stands behind no later parent.
  void add(int above);
  int nodes() const { return static_cast<int>(parent.size()) - 1; }  // without the root
  int children(int node) const;
  int first_child(int node) const;  // nodes() + 1: none
  /// The first `nodes` nodes that are not deeper than `most_depth`.
  TreeShape cut(int nodes, int most_depth) const;
  /// Most nodes with children at one depth.
  int widest() const;
};

/// EAGLE-2's tree of candidates: each level's most promising nodes are expanded, and at the end the
/// most promising of all become the tree. A node's value is the product of its path's scores.
class DynamicTree {
 public:
  void reset() { nodes_.assign(1, {}); }
  int depth(int node) const { return at(node).depth; }
  int parent(int node) const { return at(node).parent; }
  int32_t token(int node) const { return at(node).token; }
  float score(int node) const { return at(node).score; }
  double value(int node) const { return at(node).value; }
  int size() const { return static_cast<int>(nodes_.size()); }
  /// Tokens from depth 1 down to the node, after clearing `out`.
  void path_tokens(int node, std::vector<int32_t>& out) const;
  void add_children(int node, std::span<const RankedToken> ranked);
  /// The `count` nodes of most value at that depth, best first.
  std::vector<int> best_at(int depth, int count) const;
  /// Adds the nodes of most value to the tree, ancestors first, until it is full. No node is worth
  /// more than its parent, so that what is kept hangs together.
  void rerank(TokenTree& tree) const;

 private:
  struct Node {
    int parent = -1;
    int32_t token = 0;
    int depth = 0;
    float score = 1.0f;
    double value = 1.0;
  };
  const Node& at(int node) const { return nodes_[static_cast<size_t>(node)]; }

  std::vector<Node> nodes_;
};

}  // namespace coppice
