// Sequoia's tree construction (Chen 2024, "Sequoia: Scalable, Robust, and Hardware-aware
// Speculative Decoding", section 3.1 and 3.3): the tree of a given size and depth that emits the
// most tokens, when the k-th child is accepted with probability p_k, and the size that pays most on
// the machine at hand.
//
//   SequoiaTrees trees({0.7, 0.1, 0.04}, 64, 8);
//   TreeShape shape = trees.shape(20, 5);
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "decoding/draft_shapes.h"

namespace coppice {

class SequoiaTrees {
 public:
  /// acceptance[k]: probability that the k-th child is accepted, given that its parent was (the
  /// paper's acceptance vector). Computes every size up to `most_nodes` and depth up to
  /// `most_depth`, in O(children x nodes^2 x depth).
  SequoiaTrees(std::span<const double> acceptance, int most_nodes, int most_depth);

  /// Tokens that the best tree of at most so many nodes and levels emits a step, bonus included.
  double expected_tokens(int nodes, int depth) const;
  TreeShape shape(int nodes, int depth) const;

  struct Size {
    int nodes = 0;
    int depth = 0;
  };
  /// Section 3.3: the size that maximises expected tokens / time, where a target pass over `rows`
  /// rows takes seconds(rows) and each level of the tree takes `draft_seconds`. No nodes: drafting
  /// does not pay.
  Size best_size(const std::function<double(int rows)>& seconds, double draft_seconds,
                 Size most) const;

 private:
  double value(int depth, int nodes) const;
  int part(int depth, int child, int nodes) const;
  size_t index(int depth, int child, int nodes) const;

  int children_, most_nodes_, most_depth_;
  std::vector<double> value_;  // (depth, nodes + 1): of a subtree, its own root counted as one
  std::vector<int> part_;      // (depth, children, nodes + 1): nodes for that child's subtree
};

}  // namespace coppice
