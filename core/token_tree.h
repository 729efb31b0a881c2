// The token tree that a drafter grows and a rule walks. Node 0 is the last token that is certain;
// every other node hangs under an earlier one, so parent[i] < i. Siblings are judged in index
// order, which is the order they were drawn in.
//
//   tree.reset(last_token, 8);
//   int a = tree.add({.parent = 0, .token = 17});
//   tree.add({.parent = a, .token = 4});
#pragma once

#include <climits>
#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

enum class NodeRole : uint8_t {
  verify,  // a candidate: a rule may accept it
  probe,   // computed for its logits only: a rule never walks into it
};

inline constexpr int kPointMass = -1;

/// Draft distributions exactly as tokens were drawn from them: warped, normalised, aligned by token
/// id. Dense rows hold every id of the vocabulary, sparse rows (ids, probabilities).
class QRows {
 public:
  struct Row {
    std::span<const int32_t> ids;  // empty: dense, index = token id; else strictly ascending
    std::span<const float> p;
    bool without_replacement = false;  // siblings were drawn without replacement from this row
    float probability(int32_t token) const;
  };

  void clear();
  /// Both copy, and return the row's number.
  int add_dense(std::span<const float> p, bool without_replacement = false);
  int add_sparse(std::span<const int32_t> ids, std::span<const float> p,
                 bool without_replacement = false);
  int size() const { return static_cast<int>(entries_.size()); }
  Row row(int index) const;

 private:
  struct Entry {
    size_t first = 0, count = 0;
    bool dense = false, without_replacement = false;
    size_t first_id = 0;
  };
  std::vector<Entry> entries_;
  std::vector<int32_t> ids_;
  std::vector<float> p_;
};

struct TreeNode {
  int parent = 0;
  int32_t token = 0;
  NodeRole role = NodeRole::verify;
  int q_row = kPointMass;  // row of TokenTree::q that the token was drawn from
  float score = 1.0f;      // P(accepted | parent accepted), the drafter's estimate
  uint8_t source = 0;      // which part of a composed drafter grew it: scores are judged by source
};

class TokenTree {
 public:
  /// Empties the tree, sets node 0, and allows up to `capacity` further nodes, none deeper than
  /// `most_depth`.
  void reset(int32_t root, int capacity, int most_depth = INT_MAX);
  /// The node's index, or -1 when the tree is full or the node would stand too deep. The parent
  /// exists; a verify node hangs under a verify node, and differs from its point-mass siblings when
  /// it is a point mass, from those drawn from its row when that is without replacement; a drawn
  /// token has a probability above 0 in its row. Anything else aborts.
  int add(const TreeNode& node);

  int size() const { return static_cast<int>(token_.size()); }  // node 0 included
  int room() const { return capacity_ + 1 - size(); }
  int most_depth() const { return most_depth_; }
  int32_t token(int i) const { return token_[i]; }
  int parent(int i) const { return parent_[i]; }  // -1 for node 0
  int depth(int i) const { return depth_[i]; }    // 0 for node 0
  NodeRole role(int i) const { return role_[i]; }
  int q_row(int i) const { return q_row_[i]; }
  float score(int i) const { return score_[i]; }
  int source(int i) const { return source_[i]; }
  int first_child(int i) const { return first_child_[i]; }    // -1: none
  int next_sibling(int i) const { return next_sibling_[i]; }  // -1: none
  /// Removes the nodes whose entry is 0 and numbers the others anew, in order. `keep` has one entry
  /// a node; node 0 stays, and a node stays with its parent alone.
  void cut(std::span<const uint8_t> keep);
  /// By index before the cut: the node's index now, -1 where it was cut. Empty: nothing was.
  std::span<const int> renumbered() const { return renumbered_; }
  /// First verify child of `parent` that holds `token`; -1: none.
  int find_child(int parent, int32_t token) const;
  /// Tokens from depth 1 down to node i, appended to `out` after clearing it.
  void path_tokens(int i, std::vector<int32_t>& out) const;

  QRows q;

 private:
  void append(const TreeNode& node);
  void link(int node);

  int capacity_ = 0;
  int most_depth_ = INT_MAX;
  std::vector<int32_t> token_;
  std::vector<int32_t> parent_, depth_, q_row_, first_child_, last_child_, next_sibling_;
  std::vector<NodeRole> role_;
  std::vector<float> score_;
  std::vector<uint8_t> source_;
  std::vector<int> renumbered_;
};

}  // namespace coppice
