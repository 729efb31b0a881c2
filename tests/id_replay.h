// Decodes a recorded text with a drafter that sees only ids, as `greedy` would: the target is the
// record. And made-up texts that repeat themselves the way answers do.
//
//   Replay replay = replay_text(drafter, prompt, answer);
//   EXPECT_EQ(replay.emitted, replay_text(naive, prompt, answer).emitted);
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "decoding/drafter.h"

namespace coppice::test {

struct Replay {
  std::vector<int> emitted;  // tokens of each step, the bonus included
  double tokens_per_step() const {
    int sum = 0;
    for (int tokens : emitted) sum += tokens;
    return emitted.empty() ? 0.0 : static_cast<double>(sum) / static_cast<double>(emitted.size());
  }
};

/// Called for each step: the tree and the accepted path, node 0 not included.
using OnTree = std::function<void(const TokenTree&, const std::vector<int>&)>;

/// The answer's first token is the prefill's. `budget` -1: as many nodes as the drafter wants.
inline Replay replay_text(Drafter& drafter, const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& answer, int budget = -1,
                          const OnTree& on_tree = {}, SeqId sequence = 0) {
  std::vector<int32_t> tokens = prompt;
  tokens.push_back(answer.at(0));
  size_t given = 1;
  const int nodes = budget < 0 ? drafter.needs().most_nodes : budget;
  Replay replay;
  while (given < answer.size()) {
    TokenTree tree;
    const int left = static_cast<int>(answer.size() - given);
    tree.reset(tokens.back(), nodes, left - 1);
    DraftJob job;
    job.sequence = sequence;
    job.tokens = tokens;
    job.budget = nodes;
    job.tree = &tree;
    drafter.propose({&job, 1});
    std::vector<int> path;
    int node = 0;
    while ((node = tree.find_child(node, answer[given + path.size()])) >= 0) path.push_back(node);
    if (on_tree) on_tree(tree, path);
    const size_t emitted = path.size() + 1;
    for (size_t i = 0; i < emitted; ++i) tokens.push_back(answer[given + i]);
    given += emitted;
    replay.emitted.push_back(static_cast<int>(emitted));
    Observation seen;
    seen.sequence = sequence;
    seen.tokens = tokens;
    seen.tree = &tree;
    seen.path = path;
    drafter.observe({&seen, 1});
  }
  return replay;
}

/// Phrases from a small book with slips between them: matches of every length, that go on
/// differently from time to time.
inline std::vector<int32_t> phrase_text(uint32_t seed, size_t length, int vocabulary = 40) {
  std::mt19937 random(seed);
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  std::vector<std::vector<int32_t>> book(6);
  for (auto& phrase : book) {
    for (int i = 3 + draw(9); i > 0; --i) phrase.push_back(draw(vocabulary));
  }
  std::vector<int32_t> text;
  while (text.size() < length) {
    for (int32_t token : book[static_cast<size_t>(draw(6))]) {
      text.push_back(draw(12) == 0 ? draw(vocabulary) : token);
    }
  }
  text.resize(length);
  return text;
}

}  // namespace coppice::test
