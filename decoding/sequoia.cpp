// See sequoia.h.
#include "decoding/sequoia.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {

// Section 3.1, eq. 2 and appendix: T(n) = max over n_1 + .. + n_b = n - 1 of
// 1 + sum_k p_k T(n_k). The sum is maximised child by child: `forest` is the best of children
// k, k+1, .. with m nodes among them, and a child without nodes ends the list.
SequoiaTrees::SequoiaTrees(std::span<const double> acceptance, int most_nodes, int most_depth)
    : children_(static_cast<int>(acceptance.size())),
      most_nodes_(most_nodes),
      most_depth_(most_depth) {
  COPPICE_CHECK(children_ > 0 && most_nodes > 0 && most_depth > 0);
  const size_t sizes = static_cast<size_t>(most_nodes) + 1;  // nodes below a root: 0..most_nodes
  const size_t depths = static_cast<size_t>(most_depth) + 1;
  value_.assign(depths * sizes, 1.0);
  part_.assign(depths * acceptance.size() * sizes, 0);
  std::vector<double> below(sizes), forest(sizes);
  for (int depth = 1; depth <= most_depth; ++depth) {
    std::fill(below.begin(), below.end(), 0.0);
    for (int child = children_ - 1; child >= 0; --child) {
      for (int nodes = 0; nodes <= most_nodes; ++nodes) {
        double best = 0.0;
        int part = 0;
        for (int own = 1; own <= nodes; ++own) {  // its root and own - 1 nodes under it
          const double tokens = acceptance[static_cast<size_t>(child)] * value(depth - 1, own - 1) +
                                below[static_cast<size_t>(nodes - own)];
          if (tokens > best) {
            best = tokens;
            part = own;
          }
        }
        forest[static_cast<size_t>(nodes)] = best;
        part_[index(depth, child, nodes)] = part;
      }
      below = forest;
    }
    for (int nodes = 0; nodes <= most_nodes; ++nodes) {
      value_[static_cast<size_t>(depth) * sizes + static_cast<size_t>(nodes)] =
          1.0 + below[static_cast<size_t>(nodes)];
    }
  }
}

size_t SequoiaTrees::index(int depth, int child, int nodes) const {
  return (static_cast<size_t>(depth) * static_cast<size_t>(children_) +
          static_cast<size_t>(child)) *
             (static_cast<size_t>(most_nodes_) + 1) +
         static_cast<size_t>(nodes);
}

double SequoiaTrees::value(int depth, int nodes) const {
  return value_[static_cast<size_t>(depth) * (static_cast<size_t>(most_nodes_) + 1) +
                static_cast<size_t>(nodes)];
}

int SequoiaTrees::part(int depth, int child, int nodes) const {
  return part_[index(depth, child, nodes)];
}

double SequoiaTrees::expected_tokens(int nodes, int depth) const {
  return value(std::min(depth, most_depth_), std::min(nodes, most_nodes_));
}

// Level by level: how many nodes each node has below it decides its children's.
TreeShape SequoiaTrees::shape(int nodes, int depth) const {
  TreeShape shape;
  std::vector<int> below = {std::min(nodes, most_nodes_)};
  const int levels = std::min(depth, most_depth_);
  for (int node = 0; node <= shape.nodes(); ++node) {
    const int left = levels - shape.depth[static_cast<size_t>(node)];
    int rest = below[static_cast<size_t>(node)];
    for (int child = 0; left > 0 && child < children_; ++child) {
      const int own = part(left, child, rest);
      if (own == 0) break;
      shape.add(node);
      below.push_back(own - 1);
      rest -= own;
    }
  }
  return shape;
}

// Section 3.3, eq. 4: speedup = G(n, d) / (t(n) + d c), here without the constant t(1).
SequoiaTrees::Size SequoiaTrees::best_size(const std::function<double(int rows)>& seconds,
                                           double draft_seconds, Size most) const {
  Size best;
  double best_speed = 1.0 / seconds(1);
  for (int nodes = 1; nodes <= std::min(most.nodes, most_nodes_); ++nodes) {
    const double verify = seconds(nodes + 1);
    for (int depth = 1; depth <= std::min({most.depth, most_depth_, nodes}); ++depth) {
      const double speed = expected_tokens(nodes, depth) / (verify + depth * draft_seconds);
      if (speed > best_speed) {
        best_speed = speed;
        best = {nodes, depth};
      }
    }
  }
  return best;
}

}  // namespace coppice
