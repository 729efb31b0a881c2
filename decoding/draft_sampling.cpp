// See draft_sampling.h.
#include "decoding/draft_sampling.h"

namespace coppice {

int add_drawn(DraftJob& job, int parent, std::span<const float> logits) {
  TokenTree& tree = *job.tree;
  if (tree.room() == 0 || tree.depth(parent) >= tree.most_depth()) return -1;
  std::vector<int32_t> path;
  tree.path_tokens(parent, path);
  const TokenContext context{job.tokens, path};
  const int root_position = static_cast<int>(job.tokens.size()) - 1;
  const int depth = tree.depth(parent) + 1;
  TreeNode node{.parent = parent};
  switch (job.draw) {
    case Draw::argmax:
      node.token = job.sampler->argmax(logits, context);
      break;
    case Draw::coupled:
      node.token = job.sampler->coupled(logits, context, root_position + depth);
      break;
    case Draw::independent: {
      const std::span<const float> q = job.sampler->probabilities(logits, context);
      node.token = job.sampler->draw_draft(q, root_position, depth, tree.size());
      node.q_row = tree.q.add_dense(q);
      break;
    }
  }
  return tree.add(node);
}

}  // namespace coppice
