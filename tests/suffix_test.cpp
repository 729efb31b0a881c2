// SuffixDecoding against counts taken by search: the tree's own counts on random strings, and the
// drafter on texts that repeat themselves. Source: Oliaro 2024, section 4.
#include "drafters/suffix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/id_replay.h"
#include "tests/scripted_drafter.h"

namespace coppice {
namespace {

using Tokens = std::vector<int32_t>;

struct Follower {
  int32_t token = 0;
  int count = 0;
  size_t first = 0;  // where it was first seen
};
// What followed `wanted` in `text`, the token first seen last in front.
std::vector<Follower> followers(const Tokens& text, const Tokens& wanted) {
  std::vector<Follower> found;
  for (size_t at = 0; at + wanted.size() < text.size(); ++at) {
    if (!std::equal(wanted.begin(), wanted.end(), text.begin() + static_cast<long>(at))) continue;
    const int32_t token = text[at + wanted.size()];
    const auto known = std::find_if(found.begin(), found.end(),
                                    [&](const Follower& f) { return f.token == token; });
    if (known == found.end()) {
      found.insert(found.begin(), {token, 1, at});
    } else {
      ++known->count;
    }
  }
  return found;
}

struct Candidate {
  int parent = 0;
  Tokens path;
  double probability = 1.0;
};
// Algorithm 1 by search: grow the best tree for every matched length, keep the best of them.
void speculate(DraftJob& job, const SuffixOptions& options) {
  const Tokens text(job.tokens.begin(), job.tokens.end());
  std::vector<Candidate> best;
  double best_score = 0;
  const int longest = std::min<int>(options.max_depth, static_cast<int>(text.size()) - 1);
  for (int length = longest; length > 0; --length) {
    const Tokens suffix(text.end() - length, text.end());
    std::vector<Candidate> tree, queue;
    double score = 0;
    for (Candidate at{.path = {}};
         static_cast<double>(tree.size()) <= options.max_spec_factor * length + 1e-6;) {
      Tokens context = suffix;
      context.insert(context.end(), at.path.begin(), at.path.end());
      int sum = 0;
      const auto next = followers(text, context);
      for (const Follower& f : next) sum += f.count;
      for (const Follower& f : next) {
        Candidate child{static_cast<int>(tree.size()), at.path,
                        at.probability * (static_cast<double>(f.count) / sum)};
        child.path.push_back(f.token);
        const bool deep = static_cast<int>(context.size()) + 1 > options.max_depth;
        if (!deep && child.probability >= options.min_token_prob) queue.push_back(child);
      }
      const auto top = std::max_element(queue.begin(), queue.end(), [](auto& a, auto& b) {
        return a.probability < b.probability;  // the earliest of equals
      });
      if (top == queue.end()) break;
      if (static_cast<double>(tree.size()) + 1 > options.max_spec_factor * length + 1e-6) break;
      at = *top;
      queue.erase(top);
      score += at.probability;
      tree.push_back(at);
    }
    if (score > best_score) {
      best_score = score;
      best = tree;
    }
  }
  std::vector<int> index = {0};
  for (const Candidate& node : best) {
    const int parent = index[static_cast<size_t>(node.parent)];
    index.push_back(parent < 0 ? -1 : job.tree->add({.parent = parent, .token = node.path.back()}));
  }
}

TEST(SuffixTree, CountsWhatASearchCounts) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const int depth = 2 + trial % 7;
    const int alphabet = 1 + trial % 4;
    SuffixTree tree(depth), other(depth);
    for (int i = 0; i < 30; ++i) other.append(static_cast<int32_t>(random()) % alphabet & 3);
    Tokens text;
    std::vector<SuffixTree::Place> places;  // of the same text, in a tree that holds it all
    std::vector<SuffixTree::Child> children;
    for (int i = 0; i < 60; ++i) {
      text.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet)));
      tree.append(text.back());
      for (int length = 1; length <= depth; ++length) {
        const bool fits = static_cast<size_t>(length) < text.size();
        const auto expected = fits ? followers(text, Tokens(text.end() - length, text.end()))
                                   : std::vector<Follower>();
        const auto at = static_cast<size_t>(length) - 1;
        ASSERT_EQ(at < tree.repeated().size(), !expected.empty()) << length;
        if (expected.empty()) break;
        const int sum = tree.children(tree.repeated()[at], children);
        if (length == depth) continue;  // the tree ends here
        ASSERT_EQ(children.size(), expected.size());
        int expected_sum = 0;
        for (size_t c = 0; c < children.size(); ++c) {
          EXPECT_EQ(children[c].token, expected[c].token);
          EXPECT_EQ(children[c].count, expected[c].count);
          expected_sum += expected[c].count;
        }
        EXPECT_EQ(sum, expected_sum);
      }
    }
    // Another text's last tokens, followed through the finished tree.
    Tokens query;
    for (int i = 0; i < 60; ++i) {
      query.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet)));
      tree.advance(places, query.back());
      size_t longest = 0;
      while (longest < std::min(query.size(), static_cast<size_t>(depth)) &&
             std::search(text.begin(), text.end(), query.end() - static_cast<long>(longest) - 1,
                         query.end()) != text.end()) {
        ++longest;
      }
      ASSERT_EQ(places.size(), longest);
      for (size_t length = 1; length < std::min(longest + 1, static_cast<size_t>(depth));
           ++length) {
        const auto expected =
            followers(text, Tokens(query.end() - static_cast<long>(length), query.end()));
        tree.children(places[length - 1], children);
        ASSERT_EQ(children.size(), expected.size());
        for (size_t c = 0; c < children.size(); ++c) {
          EXPECT_EQ(children[c].token, expected[c].token);
          EXPECT_EQ(children[c].count, expected[c].count);
        }
      }
    }
  }
}

TEST(SuffixDecoding, EmitsAsManyTokensAStepAsCountingBySearch) {
  for (const SuffixOptions options :
       {SuffixOptions{}, SuffixOptions{.max_depth = 12, .max_spec_factor = 3.0},
        SuffixOptions{.max_spec_factor = 1.5, .min_token_prob = 0.3}}) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      const auto text = test::phrase_text(seed, 260);
      const Tokens prompt(text.begin(), text.begin() + 80), answer(text.begin() + 80, text.end());
      SuffixDecoding drafter(options);
      test::ScriptedDrafter plain(64, [&](DraftJob& job) { speculate(job, options); });
      const test::Replay replay = test::replay_text(drafter, prompt, answer);
      EXPECT_EQ(replay.emitted, test::replay_text(plain, prompt, answer).emitted);
      EXPECT_GT(replay.tokens_per_step(), 1.3);
    }
  }
}

TokenTree propose(Drafter& drafter, const Tokens& tokens, SeqId sequence = 0, int budget = 64) {
  TokenTree tree;
  tree.reset(tokens.back(), budget);
  DraftJob job;
  job.sequence = sequence;
  job.tokens = tokens;
  job.tree = &tree;
  drafter.propose({&job, 1});
  return tree;
}

void observe(Drafter& drafter, const Tokens& tokens, bool decided, SeqId sequence) {
  TokenTree none;
  Observation seen;
  seen.sequence = sequence;
  seen.tokens = tokens;
  if (decided) seen.tree = &none;
  drafter.observe({&seen, 1});
}

// Oliaro 2024, Algorithm 1 by hand: behind 1 2, 3 came twice and 4 once; 3 went on with 5 and 6.
TEST(SuffixDecoding, GrowsTheMostProbablePathsFirst) {
  const Tokens text = {1, 2, 3, 5, 9, 1, 2, 4, 7, 1, 2, 3, 6, 8, 1, 2};
  SuffixDecoding drafter(SuffixOptions{.max_spec_factor = 2.0});
  const TokenTree tree = propose(drafter, text);
  ASSERT_EQ(tree.size(), 5);  // factor 2, match 2
  const std::vector<std::pair<int, int32_t>> expected = {{0, 3}, {0, 4}, {1, 6}, {1, 5}};
  for (int node = 1; node < tree.size(); ++node) {
    EXPECT_EQ(tree.parent(node), expected[static_cast<size_t>(node) - 1].first);
    EXPECT_EQ(tree.token(node), expected[static_cast<size_t>(node) - 1].second);
  }
  EXPECT_GT(tree.score(1), tree.score(2));
  SuffixDecoding small(SuffixOptions{.max_spec_factor = 2.0});
  EXPECT_EQ(propose(small, text, 0, 1).size(), 2);
}

TEST(SuffixDecoding, LearnsFromFinishedAnswersAndForgetsWithTheDrafter) {
  const Tokens prompt = {1, 2, 3}, answer = {20, 21, 22, 23, 24, 25};
  Tokens all = prompt;
  SuffixDecoding drafter(SuffixOptions{});
  observe(drafter, all, false, 0);  // a part of the prefill
  all.push_back(answer[0]);
  observe(drafter, all, true, 0);
  all.insert(all.end(), answer.begin() + 1, answer.end());
  observe(drafter, all, true, 0);
  const Tokens next = {7, 8, 21, 22};
  EXPECT_EQ(propose(drafter, next, 1).size(), 1);  // not finished yet
  drafter.forget(0, Reason::finished);
  const TokenTree tree = propose(drafter, next, 1);
  ASSERT_EQ(tree.size(), 3);
  EXPECT_EQ(tree.token(1), 23);
  EXPECT_EQ(tree.token(2), 24);
  EXPECT_EQ(propose(drafter, {9, 1, 2}, 2).size(), 1);  // a prompt is not an answer
  SuffixDecoding fresh(SuffixOptions{});
  EXPECT_EQ(propose(fresh, next, 1).size(), 1);
  SuffixDecoding preempted(SuffixOptions{});
  observe(preempted, all, true, 0);
  preempted.forget(0, Reason::preempted);
  EXPECT_EQ(propose(preempted, next, 1).size(), 1);
}

TEST(SuffixDecoding, OldAnswersGiveWayToNewOnes) {
  SuffixDecoding drafter(SuffixOptions{.global_tokens = 40});
  const auto finish = [&](int32_t first) {
    Tokens tokens = {1, first};
    observe(drafter, tokens, true, 0);
    for (int32_t i = 1; i < 20; ++i) tokens.push_back(first + i);
    observe(drafter, tokens, true, 0);
    drafter.forget(0, Reason::finished);
  };
  const auto knows = [&](int32_t first) {
    return propose(drafter, {7, first, first + 1}, 1 + first).size() > 1;
  };
  finish(100);
  finish(200);
  EXPECT_TRUE(knows(100) && knows(200));
  finish(300);
  EXPECT_FALSE(knows(100));
  EXPECT_TRUE(knows(200) && knows(300));
}

}  // namespace
}  // namespace coppice
