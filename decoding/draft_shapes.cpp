// See draft_shapes.h.
#include "decoding/draft_shapes.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/base/error.h"

namespace coppice {

TreeShape TreeShape::chain(int nodes) {
  TreeShape shape;
  for (int node = 0; node < nodes; ++node) shape.add(node);
  return shape;
}

TreeShape TreeShape::fixed(std::span<const int> branching) {
  TreeShape shape;
  for (int node = 0; node <= shape.nodes(); ++node) {
    const auto depth = static_cast<size_t>(shape.depth[static_cast<size_t>(node)]);
    const int children = depth < branching.size() ? branching[depth] : 0;
    for (int child = 0; child < children; ++child) shape.add(node);
  }
  return shape;
}

void TreeShape::add(int above) {
  COPPICE_CHECK(above >= parent.back() && above <= nodes());
  parent.push_back(above);
  depth.push_back(depth[static_cast<size_t>(above)] + 1);
}

int TreeShape::children(int node) const {
  return static_cast<int>(std::count(parent.begin(), parent.end(), node));
}

int TreeShape::first_child(int node) const {
  return static_cast<int>(std::find(parent.begin(), parent.end(), node) - parent.begin());
}

TreeShape TreeShape::cut(int nodes, int most_depth) const {
  TreeShape shape;
  for (size_t node = 1; node < parent.size(); ++node) {
    if (shape.nodes() == nodes || depth[node] > most_depth) break;
    shape.add(parent[node]);
  }
  return shape;
}

int TreeShape::widest() const {
  std::map<int, int> at_depth;
  int widest = 1;
  for (int node = 0; node <= nodes(); ++node) {
    if (children(node) > 0) {
      widest = std::max(widest, ++at_depth[depth[static_cast<size_t>(node)]]);
    }
  }
  return widest;
}

void DynamicTree::path_tokens(int node, std::vector<int32_t>& out) const {
  out.resize(static_cast<size_t>(depth(node)));
  for (int i = node; i > 0; i = parent(i)) out[static_cast<size_t>(depth(i)) - 1] = token(i);
}

// EAGLE-2, eq. 4: V_i = product of the confidences c_j over the path to i.
void DynamicTree::add_children(int node, std::span<const RankedToken> ranked) {
  for (const RankedToken& next : ranked) {
    nodes_.push_back(
        {node, next.token, depth(node) + 1, next.score, value(node) * double{next.score}});
  }
}

// EAGLE-2, section 4.1: "we select the top-k tokens with the highest global acceptance
// probabilities from the current layer".
std::vector<int> DynamicTree::best_at(int depth, int count) const {
  std::vector<int> level;
  for (int node = 0; node < size(); ++node) {
    if (at(node).depth == depth) level.push_back(node);
  }
  std::stable_sort(level.begin(), level.end(), [&](int a, int b) { return value(a) > value(b); });
  level.resize(std::min(level.size(), static_cast<size_t>(count)));
  return level;
}

// EAGLE-2, section 4.2: the top m of all nodes, of equal ones the shallower first.
void DynamicTree::rerank(TokenTree& tree) const {
  std::vector<int> order(nodes_.size() - 1);
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return value(a) > value(b); });
  std::vector<int> placed(nodes_.size(), 0);
  for (const int node : order) {
    const int under = placed[static_cast<size_t>(parent(node))];
    const int index = tree.add({.parent = under, .token = token(node), .score = at(node).score});
    if (index < 0) return;
    placed[static_cast<size_t>(node)] = index;
  }
}

}  // namespace coppice
