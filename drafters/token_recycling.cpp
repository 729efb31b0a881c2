// See token_recycling.h.
#include "drafters/token_recycling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace coppice {
namespace {

constexpr int kTreeSize = 81;  // node 0 included

/// How many children each node of the authors' tree ("2.2.2") has, breadth first. Child i of a node
/// is its i-th most likely candidate.
constexpr std::array<int, kTreeSize> kChildren = {
    8,                                                  // node 0
    8, 4, 3, 2, 1, 1, 1, 1,                             // depth 1
    8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0,  // depth 2
    1, 1, 0, 0,                                         //
    5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0,  // depth 3
    0, 1, 0, 0, 1, 1, 0, 0,                             //
    3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0,        // depth 4
    2, 0, 0, 1, 0, 0, 0, 0,                             // depth 5
    0, 0, 0};                                           // depth 6

struct StaticNode {
  int parent = 0;
  int rank = 0;  // among the parent's candidates
};

constexpr std::array<StaticNode, kTreeSize> static_tree() {
  std::array<StaticNode, kTreeSize> tree = {};
  int next = 1;
  for (int node = 0; node < kTreeSize; ++node) {
    for (int rank = 0; rank < kChildren[static_cast<size_t>(node)]; ++rank) {
      tree[static_cast<size_t>(next++)] = {node, rank};
    }
  }
  return tree;
}

constexpr std::array<StaticNode, kTreeSize> kTree = static_tree();

/// P(accepted | parent accepted) by rank, whatever the token; orders the nodes of the tree.
constexpr std::array<float, TokenRecycling::kCandidates> kByRank = {0.45f, 0.13f,  0.07f, 0.05f,
                                                                    0.03f, 0.025f, 0.02f, 0.015f};

/// P(accepted | parent accepted) of the candidate at `rank` that had probability p among the eight
/// when it was recorded. Fitted by logistic regression to SmolLM2's greedy answers to prompts that
/// no experiment here uses.
float prior(float p, int rank) {
  const float odds = std::log((p + 0.01f) / (1.01f - p));
  const float x = -0.6f + 0.6f * odds - 0.4f * std::log2(static_cast<float>(rank + 1));
  return 1.0f / (1.0f + std::exp(-x));
}

}  // namespace

TokenRecycling::TokenRecycling(const TokenRecyclingOptions& options, const MethodParts& parts)
    : options_(options),
      matrix_(static_cast<size_t>(parts.target->config().vocabulary)),
      place_(kTreeSize),
      index_(kTreeSize) {
  std::array<float, kTreeSize> likelihood = {1.0f};
  for (size_t node = 1; node < kTreeSize; ++node) {
    likelihood[node] = likelihood[static_cast<size_t>(kTree[node].parent)] *
                       kByRank[static_cast<size_t>(kTree[node].rank)];
  }
  std::vector<int> order(kTreeSize);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return likelihood[static_cast<size_t>(a)] > likelihood[static_cast<size_t>(b)];
  });
  for (int i = 0; i < kTreeSize; ++i)
    place_[static_cast<size_t>(order[static_cast<size_t>(i)])] = i;
}

// Section 3.2: layer by layer, the children of a node are the first candidates in its token's row
// of the matrix, as many as the static tree has there.
void TokenRecycling::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const int most = std::min(options_.max_nodes, job.tree->room());
    index_[0] = 0;
    for (size_t node = 1; node < kTreeSize; ++node) {
      const auto [static_parent, rank] = kTree[node];
      const int parent = index_[static_cast<size_t>(static_parent)];
      index_[node] = -1;
      if (parent < 0 || place_[node] > most) continue;
      const Row& row = matrix_[static_cast<size_t>(job.tree->token(parent))];
      const Candidate& candidate = row[static_cast<size_t>(rank)];
      if (candidate.id < 0) continue;
      index_[node] = job.tree->add(
          {.parent = parent, .token = candidate.id, .score = prior(candidate.p, rank)});
    }
  }
}

// Section 3.3: every node's candidates replace its token's row. A token that stands in several
// nodes keeps those of the node that comes last in index order.
void TokenRecycling::observe(std::span<const Observation> observations) {
  for (const Observation& seen : observations) {
    if (seen.tree == nullptr) continue;
    for (int node = 0; node < seen.tree->size(); ++node) {
      const int row = seen.node_row[static_cast<size_t>(node)];
      const std::span<const int32_t> ids = seen.top_ids(row);
      const std::span<const float> logits = seen.top_logits(row);
      Row& candidates = matrix_[static_cast<size_t>(seen.tree->token(node))];
      float sum = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        candidates[i] = {ids[i], std::exp(logits[i] - logits[0])};
        sum += candidates[i].p;
      }
      for (Candidate& candidate : candidates) candidate.p /= sum;
    }
  }
}

}  // namespace coppice
