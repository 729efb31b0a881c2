// The acceptance rules' walks down a drafted tree, once for host and device. A walk asks `coins`
// for decisions, not for numbers, so that a test can enumerate every answer with its probability
// and production can answer with addressed noise. Each returns the token that follows the path.
//
// Tree:   size(), parent(node), first_child(node), next_sibling(node), depth(node), token(node),
//         verify(node) and proposal(node) -> Proposal. Siblings come in the order they were drawn
//         in.
// Target: argmax(node), coupled(node); p(node), scores(node) -> indexable by token; vocabulary().
// Coins:  accept(probability, node) -> bool; draw(weights, count, total, node, Purpose) -> index.
// Path:   push_back(node).
//
//   LoneTeam team;
//   int32_t next = rejection_walk(team, tree, target, coins, scratch, path);
#pragma once

#include <cstdint>

#include "kernels/shared/host_device.h"
#include "kernels/shared/math.h"
#include "kernels/shared/noise.h"
#include "kernels/shared/team.h"

namespace coppice {

/// The distribution a node's token was drawn from; p == nullptr: the drafter chose the token
/// without chance, a point mass. Entry e is token ids[e], or e itself where ids is null (dense).
struct Proposal {
  const float* p = nullptr;
  const int32_t* ids = nullptr;  // ascending
  int count = 0;
  bool without_replacement = false;  // siblings of this row were drawn without replacement

  COPPICE_HD int32_t token(int entry) const { return ids != nullptr ? ids[entry] : entry; }
  /// -1: the token is not among the entries.
  COPPICE_HD int entry(int32_t wanted) const {
    if (ids == nullptr) return wanted < count ? wanted : -1;
    int low = 0, high = count;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (ids[middle] < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < count && ids[low] == wanted ? low : -1;
  }
};

/// First verify child of `node` that holds `token`, or -1. A repeated sibling's own children are
/// therefore reached by the rejection walk only.
COPPICE_ANY_TEAM
template <class Tree>
COPPICE_HD int find_child(const Tree& tree, int node, int32_t token) {
  for (int child = tree.first_child(node); child >= 0; child = tree.next_sibling(child)) {
    if (tree.verify(child) && tree.token(child) == token) return child;
  }
  return -1;
}

/// Greedy: walk while the target's most probable token is a child.
COPPICE_ANY_TEAM
template <class Tree, class Target, class Path>
COPPICE_HD int32_t greedy_walk(const Tree& tree, Target& target, Path& path) {
  for (int node = 0;;) {
    const int32_t token = target.argmax(node);
    node = find_child(tree, node, token);
    if (node < 0) return token;
    path.push_back(node);
  }
}

/// Coupled: walk while the target's own Gumbel-max draw for that position is a child. The draw
/// never looks at the tree, so what is emitted is the baseline's text (Daliri et al. 2024, section
/// 3).
COPPICE_ANY_TEAM
template <class Tree, class Target, class Path>
COPPICE_HD int32_t coupled_walk(const Tree& tree, Target& target, Path& path) {
  for (int node = 0;;) {
    const int32_t token = target.coupled(node);
    node = find_child(tree, node, token);
    if (node < 0) return token;
    path.push_back(node);
  }
}

/// Memory of a rejection walk, (vocabulary) each.
struct RejectionScratch {
  double* residual = nullptr;  // the target's distribution given that the siblings so far failed
  double* proposal = nullptr;  // the drafter's, by entry, without what it may no longer draw
};

namespace walk_detail {

/// proposal = the row of `child` less the tokens of earlier siblings, where those were drawn from
/// it without replacement (Sequoia 2024, the verification algorithm: D[x] <- 0).
COPPICE_ANY_TEAM
template <class Team, class Tree>
COPPICE_HD void load_proposal(Team& team, const Tree& tree, int first, int child,
                              const Proposal& row, double* proposal) {
  team.for_each(row.count, [&](int e) { proposal[e] = static_cast<double>(row.p[e]); });
  if (!row.without_replacement) return;
  if (team.leads()) {
    for (int earlier = first; earlier != child; earlier = tree.next_sibling(earlier)) {
      if (tree.verify(earlier) && tree.proposal(earlier).p == row.p) {
        proposal[row.entry(tree.token(earlier))] = 0.0;
      }
    }
  }
  team.wait();
}

/// place = 0, between two waits: others may still read it, or are about to.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD void clear(Team& team, double& place) {
  team.wait();
  if (team.leads()) place = 0.0;
  team.wait();
}

}  // namespace walk_detail

/// Rejection: Leviathan 2023 Alg. 1 and Chen 2023 Alg. 2 on chains, SpecInfer Alg. 2 on trees,
/// Sequoia 2024 without replacement. Exact when every child was drawn from its proposal given the
/// path, or chosen without chance, independently of its siblings' fate.
/// All threads of the team walk alike (kernels/shared/team.h).
COPPICE_ANY_TEAM
template <class Team, class Tree, class Target, class Coins, class Path>
COPPICE_HD int32_t rejection_walk(Team& team, const Tree& tree, Target& target, Coins& coins,
                                  RejectionScratch scratch, Path& path) {
  const int vocabulary = target.vocabulary();
  double* const residual = scratch.residual;
  double* const proposal = scratch.proposal;
  for (int node = 0;;) {
    const auto& p = target.p(node);
    team.wait();  // some may still be reading what the node before left
    const auto left = [&](int i) { return residual[i]; };
    team.for_each(vocabulary, [&](int i) { residual[i] = static_cast<double>(p[i]); });
    double total = team.sum(vocabulary, left);

    Purpose purpose = Purpose::bonus;  // until a child has failed
    const float* loaded = nullptr;
    int accepted = -1;
    const int first = tree.first_child(node);
    for (int child = first; child >= 0; child = tree.next_sibling(child)) {
      if (!tree.verify(child)) continue;
      const int32_t token = tree.token(child);
      const Proposal row = tree.proposal(child);

      // Leviathan: reject when r > p(x) / q(x). Chen: accept when r < min(1, q / p), with the
      // letters swapped. SpecInfer: accept when r <= P(x | u, LLM) / P(x | u, SSM).
      double ratio = residual[token] / total;
      double q_total = 0.0;
      if (row.p != nullptr) {
        if (row.p != loaded) walk_detail::load_proposal(team, tree, first, child, row, proposal);
        loaded = row.p;
        q_total = team.sum(row.count, [&](int e) { return proposal[e]; });
        const double q = proposal[row.entry(token)] / q_total;
        ratio = ratio < q ? ratio / q : 1.0;
      }
      if (coins.accept(ratio, child)) {
        accepted = child;
        break;
      }

      // Leviathan "adjust the distribution from M_p if needed", Chen (q - p)+, SpecInfer
      // "normalize the residual": p <- norm(max(0, p - q)).
      purpose = Purpose::residual;
      if (row.p == nullptr) {
        walk_detail::clear(team, residual[token]);  // q is one at the token
        total = team.sum(vocabulary, left);
        continue;
      }
      team.wait();
      team.for_each(vocabulary, [&](int i) { residual[i] /= total; });
      team.for_each(row.count, [&](int e) {
        double& r = residual[row.token(e)];
        r -= proposal[e] / q_total;
        r = r > 0.0 ? r : 0.0;
      });
      total = team.sum(vocabulary, left);
      if (!(total > 0.0)) {  // p and q differ by rounding alone: either is right
        team.for_each(row.count, [&](int e) { residual[row.token(e)] = proposal[e]; });
        total = q_total;
      }
      // Sequoia: D[x] <- 0
      if (row.without_replacement) walk_detail::clear(team, proposal[row.entry(token)]);
    }

    // Leviathan's last step "return one token from M_p": from p itself where no child was judged
    // (Chen "if all tokens are accepted"), else from what the failed children left.
    if (accepted < 0) return coins.draw(residual, vocabulary, total, node, purpose);
    path.push_back(accepted);
    node = accepted;
  }
}

/// Typical acceptance, lossy: Cai 2024 (Medusa), section 2.3.1. A token is typical when
///   p(x) > min(epsilon, delta exp(-H(p))),
/// with p and its entropy H after every warp; of the paths of typical tokens the longest is kept,
/// of equally long ones the likeliest. The token behind it is the target's own draw, so that a step
/// without a draft is the baseline's. `likelihood` is scratch, (nodes).
template <class Tree, class Target, class Path>
COPPICE_HD int32_t typical_walk(const Tree& tree, Target& target, double epsilon, double delta,
                                double* likelihood, Path& path) {
  constexpr double kUntypical = 1.0;  // no logarithm of a probability
  const int vocabulary = target.vocabulary();
  for (int node = 0; node < tree.size(); ++node) likelihood[node] = node == 0 ? 0.0 : kUntypical;
  int best = 0;
  for (int node = 0; node < tree.size(); ++node) {  // parents come before their children
    if (likelihood[node] == kUntypical) continue;
    const int deeper = tree.depth(node) - tree.depth(best);
    if (deeper > 0 || (deeper == 0 && likelihood[node] > likelihood[best])) best = node;
    bool judges = false;
    for (int c = tree.first_child(node); c >= 0; c = tree.next_sibling(c)) {
      judges = judges || tree.verify(c);
    }
    if (!judges) continue;

    const auto& p = target.p(node);
    double negative_entropy = 0.0;
    for (int i = 0; i < vocabulary; ++i) {
      const double x = static_cast<double>(p[i]);
      if (x > 0.0) negative_entropy += x * log_positive(x);
    }
    const double by_entropy =
        delta * exp_nonpositive(negative_entropy < 0.0 ? negative_entropy : 0.0);
    const double least = epsilon < by_entropy ? epsilon : by_entropy;
    for (int c = tree.first_child(node); c >= 0; c = tree.next_sibling(c)) {
      const double x = static_cast<double>(p[tree.token(c)]);
      if (!tree.verify(c) || !(x > least)) continue;
      const double so_far = likelihood[node] + log_positive(x);
      likelihood[c] = so_far < 0.0 ? so_far : 0.0;
    }
  }
  // The path from node 0 down, without memory of its own: at each depth the ancestor of `best`.
  for (int depth = 1; depth <= tree.depth(best); ++depth) {
    int node = best;
    while (tree.depth(node) > depth) node = tree.parent(node);
    path.push_back(node);
  }
  return target.coupled(best);
}

/// Threshold acceptance, lossy: Xia 2023 (SpecDec), section 3.2. A token is good enough when it is
/// among the target's `most_rank` most likely (Stern 2018, section 5.1) and at most `most_gap` nats
/// less likely than the first of them. The walk goes to the likeliest such child; the token behind
/// the path is the target's own draw. `inverse_temperature` scales the scores: 1 where T is 0.
template <class Tree, class Target, class Path>
COPPICE_HD int32_t threshold_walk(const Tree& tree, Target& target, int most_rank, double most_gap,
                                  double inverse_temperature, Path& path) {
  const int vocabulary = target.vocabulary();
  for (int node = 0;;) {
    int best = -1;
    if (tree.first_child(node) >= 0) {
      const auto& scores = target.scores(node);
      for (int c = tree.first_child(node); c >= 0; c = tree.next_sibling(c)) {
        const bool likelier = best < 0 || scores[tree.token(c)] > scores[tree.token(best)];
        if (tree.verify(c) && likelier) best = c;
      }
      if (best >= 0) {
        const float score = scores[tree.token(best)];
        float most = score;
        int above = 0;
        for (int i = 0; i < vocabulary; ++i) {
          above += scores[i] > score || (scores[i] == score && i < tree.token(best)) ? 1 : 0;
          most = scores[i] > most ? scores[i] : most;
        }
        const double gap =
            (static_cast<double>(most) - static_cast<double>(score)) * inverse_temperature;
        if (above >= most_rank || !(gap <= most_gap)) best = -1;  // a NaN gap: both are -infinity
      }
    }
    if (best < 0) return target.coupled(node);
    path.push_back(best);
    node = best;
  }
}

/// Forced acceptance, for timing alone: at every depth d the first verify child is kept with
/// probability acceptance[d - 1], the last entry serving for all that lie deeper. What it emits
/// means nothing.
template <class Tree, class Target, class Coins, class Path>
COPPICE_HD int32_t forced_walk(const Tree& tree, Target& target, Coins& coins,
                               const double* acceptance, int count, Path& path) {
  for (int node = 0;;) {
    int child = tree.first_child(node);
    while (child >= 0 && !tree.verify(child)) child = tree.next_sibling(child);
    const int at = tree.depth(node) < count ? tree.depth(node) : count - 1;
    if (child < 0 || !coins.accept(acceptance[at], child)) return target.coupled(node);
    path.push_back(child);
    node = child;
  }
}

}  // namespace coppice
