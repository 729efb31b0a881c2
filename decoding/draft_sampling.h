// How a drafter that samples grows children from its own logits: through the target's warps, in the
// way the rule asks for.
//
//   add_children(job, 0, logits, {.count = 2}, nodes);   // nodes: what was added, first drawn
//   first
#pragma once

#include <span>
#include <vector>

#include "decoding/drafter.h"

namespace coppice {

/// Siblings that are grown together. `count` may depend on the ancestors and on the distribution
/// they are drawn from, never on what is drawn.
struct SiblingGroup {
  int count = 1;
  bool without_replacement = true;  // of independent draws: Sequoia 2024; else SpecInfer 2023
};

/// Grows children of `parent`: the most probable tokens, those with the best noisy scores, or draws
/// that keep their q row (at temperature 0, where q is a point mass: the most probable). A node's
/// score is its probability of acceptance as the draft model sees it; drawn siblings all have the
/// same one, a function of q alone. `nodes` are those added: fewer when the tree or q is used up.
void add_children(DraftJob& job, int parent, std::span<const float> logits,
                  const SiblingGroup& group, std::vector<int>& nodes);

/// A single child: the node's index, or -1 when it could not stand in the tree.
int add_drawn(DraftJob& job, int parent, std::span<const float> logits);

/// The best `count` tokens behind `parent` for a tree of point masses under any rule, best first.
void rank_children(DraftJob& job, std::span<const int32_t> path, std::span<const float> logits,
                   int count, std::vector<RankedToken>& ranked);

}  // namespace coppice
