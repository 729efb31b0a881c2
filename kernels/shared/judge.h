// The op Judge for any team: rows are warped when a walk asks for them. Source of the rules:
// kernels/shared/walk.h; of the warps: kernels/shared/warp.h.
//
//   LoneTeam team;
//   judge(team, op, JudgeScratch{...});
#pragma once

#include "kernels/backend.h"
#include "kernels/shared/walk.h"
#include "kernels/shared/warp_row.h"

namespace coppice {

/// Memory of a judge for one row at a time.
struct JudgeScratch {
  float* scores = nullptr;      // (vocabulary) where a row is changed before it is warped
  double* weight = nullptr;     // (vocabulary)
  float* p = nullptr;           // (vocabulary) for rejection, as the next two
  double* residual = nullptr;   // (vocabulary)
  double* remaining = nullptr;  // (vocabulary) of a proposal
};

/// The tree as walks read it.
struct JudgedTree {
  const Judge& op;
  COPPICE_HD int size() const { return op.nodes; }
  COPPICE_HD int first_child(int node) const { return op.node[node].first_child; }
  COPPICE_HD int next_sibling(int node) const { return op.node[node].next_sibling; }
  COPPICE_HD int depth(int node) const { return op.node[node].depth; }
  COPPICE_HD int32_t token(int node) const { return op.node[node].token; }
  COPPICE_HD bool verify(int node) const { return op.node[node].verify != 0; }
  COPPICE_HD Proposal proposal(int node) const {
    const int index = op.node[node].proposal;
    if (index < 0) return {};
    const JudgeProposal& row = op.proposal[index];
    return {op.q + row.first, row.first_id < 0 ? nullptr : op.q_ids + row.first_id, row.count,
            row.without_replacement != 0};
  }
};

/// The accepted nodes, written by the team's first thread behind the two numbers.
template <class Team>
struct VerdictPath {
  Team& team;
  int32_t* verdict;
  int count = 0;
  COPPICE_ANY_TEAM
  COPPICE_HD void push_back(int node) {
    if (team.leads()) verdict[2 + count] = node;
    ++count;
  }
};

COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD void write_verdict(Team& team, int32_t* verdict, int count, int32_t token) {
  if (!team.leads()) return;
  verdict[0] = count;
  verdict[1] = token;
}

/// Token `back` places before the end of history and the path down to `node`.
COPPICE_HD inline int32_t context_token(const Judge& op, int node, int back) {
  for (; back > 0 && op.node[node].depth > 0; --back) node = op.node[node].parent;
  if (op.node[node].depth > 0) return op.node[node].token;
  return op.history[op.history_count - 1 - back];
}

/// The row of `node` after penalties, bias and masks: the logits themselves where there are none.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD const float* judged_scores(Team& team, const Judge& op, int node, float* scores) {
  const float* logits =
      op.logits + static_cast<int64_t>(op.node[node].logit_row) * op.logits_stride;
  if (op.window == 0 && op.biases == 0 && op.masks == 0) return logits;
  team.wait();
  team.for_each(op.vocabulary, [&](int i) { scores[i] = logits[i]; });
  const int known = op.history_count + op.node[node].depth;
  const int window = op.window < known ? op.window : known;
  team.for_each(window, [&](int back) {  // the last place of each token changes it, once
    const int32_t token = context_token(op, node, back);
    if (token < 0 || token >= op.vocabulary) return;
    int occurrences = 0;
    for (int other = 0; other < window; ++other) {
      if (context_token(op, node, other) != token) continue;
      if (other < back) return;
      ++occurrences;
    }
    scores[token] = penalised(scores[token], occurrences, op.penalties);
  });
  team.for_each(op.biases, [&](int b) { scores[op.bias[b].token] += op.bias[b].add; });
  team.for_each(op.masks, [&](int m) { scores[op.masked[m]] = -INFINITY; });
  return scores;
}

/// What greedy or coupled emit behind `node`; -1: the row is broken.
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD int32_t judged_token(Team& team, const Judge& op, int node,
                                const JudgeScratch& scratch) {
  const float* row = judged_scores(team, op, node, scratch.scores);
  const Best best = best_logit(team, row, op.vocabulary);
  if (best.index < 0 || op.rule == Judge::Rule::greedy) return best.index;
  return coupled_token(team, row, op.vocabulary, best, op.filters, op.key,
                       op.root_position + op.node[node].depth + 1, scratch.weight);
}

/// Walks by the tokens behind each node, known beforehand.
struct KnownTokens {
  const int32_t* token;  // (nodes)
  COPPICE_HD int32_t argmax(int node) const { return token[node]; }
  COPPICE_HD int32_t coupled(int node) const { return token[node]; }
};
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD void walk_tokens(Team& team, const Judge& op, const int32_t* token) {
  KnownTokens target{token};
  VerdictPath<Team> path{team, op.verdict};
  const int32_t next = greedy_walk(JudgedTree{op}, target, path);
  write_verdict(team, op.verdict, next < 0 ? -1 : path.count, next);
}

/// The target of a rejection walk, and its coins.
template <class Team>
struct JudgedTarget {
  Team& team;
  const Judge& op;
  JudgeScratch scratch;
  bool broken = false;

  COPPICE_HD int vocabulary() const { return op.vocabulary; }
  COPPICE_ANY_TEAM
  COPPICE_HD const float* p(int node) {
    const float* row = judged_scores(team, op, node, scratch.scores);
    const Best best = best_logit(team, row, op.vocabulary);
    if (best.index < 0) {  // any distribution will do: the verdict says that there is none
      broken = true;
      team.for_each(op.vocabulary, [&](int i) { scratch.p[i] = i == 0 ? 1.0f : 0.0f; });
      return scratch.p;
    }
    const uint64_t units = warp_row(team, row, op.vocabulary, best, op.filters, scratch.weight);
    normalise_row(team, scratch.weight, op.vocabulary, units, scratch.p);
    return scratch.p;
  }
  COPPICE_ANY_TEAM
  COPPICE_HD bool accept(double probability, int node) const {
    return uniform(node, Purpose::accept, static_cast<uint32_t>(node)) < probability;
  }
  COPPICE_ANY_TEAM
  COPPICE_HD int draw(const double* weights, int count, double total, int node,
                      Purpose purpose) const {
    return team.draw(weights, count, total, uniform(node, purpose, 0));
  }
  COPPICE_HD double uniform(int node, Purpose purpose, uint32_t lane) const {
    return to_uniform(noise(op.key, op.root_position, op.node[node].depth, purpose, lane));
  }
};
COPPICE_ANY_TEAM
template <class Team>
COPPICE_HD void walk_by_rejection(Team& team, const Judge& op, const JudgeScratch& scratch) {
  JudgedTarget<Team> target{team, op, scratch};
  VerdictPath<Team> path{team, op.verdict};
  const RejectionScratch memory{scratch.residual, scratch.remaining};
  const int32_t next = rejection_walk(team, JudgedTree{op}, target, target, memory, path);
  write_verdict(team, op.verdict, target.broken ? -1 : path.count, next);
}

/// Runs the op on the host.
void judge(const Judge& op);

}  // namespace coppice
