// See draft_sampling.h.
#include "decoding/draft_sampling.h"

#include "kernels/shared/noise.h"
#include "kernels/shared/walk.h"

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
      const SamplingParams& params = job.sampler->params();
      double total = 0.0;
      for (float p : q) total += static_cast<double>(p);
      const auto coin = noise({params.seed, params.request}, root_position, depth, Purpose::draft,
                              static_cast<uint32_t>(tree.size()));
      node.token = inverse_cdf(q.data(), static_cast<int>(q.size()), total, to_uniform(coin));
      node.q_row = tree.q.add_dense(q);
      break;
    }
  }
  return tree.add(node);
}

}  // namespace coppice
