// See lookahead.h.
#include "drafters/lookahead.h"

#include <algorithm>

#include "kernels/shared/noise.h"

namespace coppice {

Needs Lookahead::needs() const {
  int probes = 0;  // the most that the window holds, with 1 to N-1 levels
  for (int levels = 1; levels < options_.ngram; ++levels) {
    const int column = options_.window + options_.ngram - 1 - levels;
    probes = std::max(probes, column - 1 + (levels - 1) * column);
  }
  return {.top_k = 1, .most_nodes = probes + options_.guesses * (options_.ngram - 1)};
}

Lookahead::State& Lookahead::state_of(SeqId sequence) {
  if (static_cast<size_t>(sequence) >= states_.size()) {
    states_.resize(static_cast<size_t>(sequence) + 1);
  }
  return states_[static_cast<size_t>(sequence)];
}

// Alg. 2, l. 2: the window starts with random tokens, here of the text so far. Level 0 is longer by
// what it loses until the last level is there.
void Lookahead::begin(State& state, std::span<const int32_t> tokens) const {
  state.begun = true;
  state.level.assign(1, {});
  for (int i = 0; i < options_.window + options_.ngram - 3; ++i) {
    const Philox4x32 word = noise({}, static_cast<int>(tokens.size()) - 1, i, Purpose::drafter, 0);
    const double at = to_uniform(word) * static_cast<double>(tokens.size());
    state.level[0].push_back(tokens[static_cast<size_t>(at)]);
  }
  const size_t rest = static_cast<size_t>(options_.ngram) - 1;
  for (size_t i = 0; options_.pool_from_prompt && i + rest < tokens.size(); ++i) {
    const auto follows = tokens.subspan(i + 1, rest);
    add_to_pool(state.pool, tokens[i], {follows.begin(), follows.end()});
  }
}

// At most G n-grams a token: the one seen longest ago makes room.
void Lookahead::add_to_pool(Pool& pool, int32_t key, Tokens follows) const {
  std::vector<Tokens>& set = pool[key];
  std::erase(set, follows);
  if (static_cast<int>(set.size()) == options_.guesses) set.erase(set.begin());
  set.push_back(std::move(follows));
}

void Lookahead::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    State& state = state_of(job.sequence);
    if (!state.begun) begin(state, job.tokens);
    state.last_level.clear();
    state.hits.settle(job.tokens);
    grow_window(state, *job.tree);
    grow_guesses(state, job.tokens.size(), *job.tree);
  }
}

// The lookahead branch, whole or not at all: a window that lacks a part yields nothing.
void Lookahead::grow_window(State& state, TokenTree& tree) const {
  size_t probes = 0;
  for (const Tokens& level : state.level) probes += level.size();
  const size_t levels = state.level.size();
  const size_t deepest = state.level[0].size() + levels - 1;
  if (tree.room() < static_cast<int>(probes) || tree.most_depth() < static_cast<int>(deepest)) {
    return;
  }
  std::vector<int> column = {0};  // the nodes of the level before
  for (int32_t token : state.level[0]) {
    column.push_back(tree.add({.parent = column.back(), .token = token, .role = NodeRole::probe}));
  }
  for (size_t l = 1; l < levels; ++l) {
    for (size_t c = 0; c < state.level[l].size(); ++c) {
      column[c] =
          tree.add({.parent = column[c], .token = state.level[l][c], .role = NodeRole::probe});
    }
  }
  state.last_level = column;
}

// The verification branch: the newest n-gram first, and the older ones by so much less likely. An
// n-gram that begins right mostly goes on so.
void Lookahead::grow_guesses(State& state, size_t position, TokenTree& tree) const {
  const auto found = state.pool.find(tree.token(0));
  if (found == state.pool.end()) return;
  const float rate = state.hits.rate();
  state.hits.expect(position, found->second.back().front());
  int rank = 0;
  for (auto guess = found->second.rbegin(); guess != found->second.rend(); ++guess) {
    ++rank;
    int node = 0;
    for (int32_t token : *guess) {
      const int parent = node;
      node = tree.find_child(parent, token);
      if (node >= 0) continue;
      node = tree.add({.parent = parent,
                       .token = token,
                       .score = parent == 0 ? rate / static_cast<float>(rank) : 0.5f + rate / 2});
      if (node < 0) break;
    }
  }
}

void Lookahead::observe(std::span<const Observation> observations) {
  for (const Observation& seen : observations) {
    if (seen.tree == nullptr) continue;
    State& state = state_of(seen.sequence);
    Tokens results;
    for (int own : state.last_level) {
      const int node = seen.node_of(own);
      const std::span<const int32_t> top =
          node < 0 ? std::span<const int32_t>() : seen.top_ids_of(node);
      if (top.empty()) break;
      results.push_back(top.front());
    }
    if (!results.empty() && results.size() == state.last_level.size()) {
      move_window(state, seen.tree->token(0), std::move(results));
    }
    state.last_level.clear();
  }
}

// Alg. 2, l. 7-20: what the target says behind the last level is the next one. The step's own node
// 0 is `root`; the window moves by one position whatever was accepted, as the published code does.
void Lookahead::move_window(State& state, int32_t root, Tokens results) const {
  std::vector<Tokens>& level = state.level;
  const auto drop_front = [](Tokens& tokens) { tokens.erase(tokens.begin()); };
  if (static_cast<int>(level.size()) < options_.ngram - 1) {
    // Filling: columns move to the front, and the results are one more level. Level 0 lacks column
    // 0, which node 0 stands for.
    for (Tokens& tokens : level) {
      if (!tokens.empty()) drop_front(tokens);
    }
    drop_front(results);
    level.push_back(std::move(results));
    return;
  }
  // Each column is an n-gram: levels 0..N-2, then the result.
  for (size_t c = 0; c < results.size(); ++c) {
    Tokens follows;
    for (size_t l = 1; l < level.size(); ++l) follows.push_back(level[l][c]);
    follows.push_back(results[c]);
    add_to_pool(state.pool, c == 0 ? root : level[0][c - 1], std::move(follows));
  }
  // Levels move down, so that columns stand one position further on.
  for (size_t l = 0; l + 1 < level.size(); ++l) level[l] = std::move(level[l + 1]);
  level.back() = std::move(results);
  drop_front(level[0]);
}

void Lookahead::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < states_.size()) {
    states_[static_cast<size_t>(sequence)] = {};
  }
}

}  // namespace coppice
