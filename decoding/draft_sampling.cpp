// See draft_sampling.h.
#include "decoding/draft_sampling.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

/// Draws from q one after the other, in the order the rule will judge them in.
void draw_children(DraftJob& job, int parent, std::span<const float> logits, TokenContext context,
                   const SiblingGroup& group, std::vector<int>& nodes) {
  TokenTree& tree = *job.tree;
  const int root_position = static_cast<int>(job.tokens.size()) - 1;
  const std::span<const float> q = job.sampler->probabilities(logits, context);
  const bool exhausting = group.count > 1 && group.without_replacement;
  TreeNode node{.parent = parent, .q_row = tree.q.add_dense(q, exhausting)};
  // One draw is right about as often as q is sure; of `count` siblings one is, so each has its
  // share.
  const double sure = *std::max_element(q.begin(), q.end());
  node.score = static_cast<float>((1.0 - std::pow(1.0 - sure, group.count)) / group.count);
  std::vector<float> left(q.begin(), q.end());
  for (int i = 0; i < group.count; ++i) {
    node.token = job.sampler->draw_draft(left, root_position, tree.depth(parent) + 1, tree.size());
    if (node.token < 0) return;
    if (exhausting) left[static_cast<size_t>(node.token)] = 0.0f;
    const int added = tree.add(node);
    if (added < 0) return;
    nodes.push_back(added);
  }
}

}  // namespace

void rank_children(DraftJob& job, std::span<const int32_t> path, std::span<const float> logits,
                   int count, std::vector<RankedToken>& ranked) {
  const TokenContext context{job.tokens, path};
  if (job.draw == Draw::coupled) {
    const int position = static_cast<int>(job.tokens.size() + path.size());
    job.sampler->rank_coupled(logits, context, position, count, ranked);
  } else {
    job.sampler->rank(logits, context, count, ranked);
  }
}

void add_children(DraftJob& job, int parent, std::span<const float> logits,
                  const SiblingGroup& group, std::vector<int>& nodes) {
  nodes.clear();
  TokenTree& tree = *job.tree;
  if (tree.room() == 0 || tree.depth(parent) >= tree.most_depth()) return;
  std::vector<int32_t> path;
  tree.path_tokens(parent, path);
  if (job.draw == Draw::independent && job.sampler->params().temperature > 0.0f) {
    draw_children(job, parent, logits, {job.tokens, path}, group, nodes);
    return;
  }
  std::vector<RankedToken> ranked;
  rank_children(job, path, logits, group.count, ranked);
  for (const RankedToken& next : ranked) {
    const int node = tree.add({.parent = parent, .token = next.token, .score = next.score});
    if (node < 0) return;
    nodes.push_back(node);
  }
}

int add_drawn(DraftJob& job, int parent, std::span<const float> logits) {
  std::vector<int> nodes;
  add_children(job, parent, logits, {.count = 1}, nodes);
  return nodes.empty() ? -1 : nodes.front();
}

}  // namespace coppice
