// Prompt lookup against a plain search, on texts that repeat themselves; and what its scores know.
#include "drafters/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/id_replay.h"
#include "tests/scripted_drafter.h"

namespace coppice {
namespace {

// Saxena 2023, by search: the longest n-gram first, its latest earlier occurrence.
void look_up(DraftJob& job, int max_ngram, int draft_length) {
  const std::vector<int32_t> text(job.tokens.begin(), job.tokens.end());
  const int size = static_cast<int>(text.size());
  for (int n = std::min(max_ngram, size - 1); n >= 1; --n) {
    for (int end = size - 2; end >= n - 1; --end) {
      if (!std::equal(text.end() - n, text.end(), text.begin() + end - n + 1)) continue;
      const int last = std::min(size, end + 1 + draft_length);
      test::add_chain(*job.tree, std::span(text).subspan(end + 1, last - end - 1));
      return;
    }
  }
}

TEST(PromptLookup, EmitsAsManyTokensAStepAsAPlainSearch) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    const auto text = test::phrase_text(seed, 400);
    const std::vector<int32_t> prompt(text.begin(), text.begin() + 100);
    const std::vector<int32_t> answer(text.begin() + 100, text.end());
    PromptLookup drafter(PromptLookupOptions{});
    test::ScriptedDrafter plain(10, [](DraftJob& job) { look_up(job, 3, 10); });
    const test::Replay replay = test::replay_text(drafter, prompt, answer);
    EXPECT_EQ(replay.emitted, test::replay_text(plain, prompt, answer).emitted);
    EXPECT_GT(replay.tokens_per_step(), 1.5);
  }
}

// Scores of the chain that follows the tokens.
std::vector<float> scores(PromptLookup& drafter, const std::vector<int32_t>& tokens) {
  TokenTree tree;
  tree.reset(tokens.back(), 10);
  DraftJob job;
  job.tokens = tokens;
  job.tree = &tree;
  drafter.propose({&job, 1});
  std::vector<float> scores;
  for (int node = 1; node < tree.size(); ++node) scores.push_back(tree.score(node));
  return scores;
}

std::vector<float> scores(const std::vector<int32_t>& tokens) {
  PromptLookup drafter(PromptLookupOptions{});
  return scores(drafter, tokens);
}

TEST(PromptLookup, ScoresGrowWithTheMatchAndWithAgreement) {
  const float one = scores({9, 1, 5, 6, 8, 1}).at(0);
  const float three = scores({7, 8, 1, 5, 6, 7, 8, 1}).at(0);
  const float five = scores({3, 4, 7, 8, 1, 5, 6, 3, 4, 7, 8, 1}).at(0);
  EXPECT_LT(one, three);  // the n-gram stops at three tokens, what is known of the match does not
  EXPECT_LT(three, five);
  const float agreed = scores({1, 5, 2, 1, 5, 3, 1}).at(0);
  const float alone = scores({4, 7, 2, 1, 5, 3, 1}).at(0);
  const float disputed = scores({1, 6, 2, 1, 5, 3, 1}).at(0);
  EXPECT_LT(disputed, alone);
  EXPECT_LT(alone, agreed);
  const std::vector<float> chain = scores({1, 5, 2, 8, 1});
  for (size_t depth = 1; depth < chain.size(); ++depth) EXPECT_LT(chain[depth - 1], chain[depth]);
}

// The history counts guesses that no budget let through, too: what came is known all the same.
TEST(PromptLookup, ScoresRememberWhetherEarlierGuessesCameTrue) {
  PromptLookup right(PromptLookupOptions{}), wrong(PromptLookupOptions{});
  const float before = scores(right, {1, 5, 2, 1}).at(0);
  EXPECT_EQ(scores(wrong, {1, 5, 2, 1}).at(0), before);
  const float after_hit = scores(right, {1, 5, 2, 1, 5, 3, 4, 3}).at(0);   // 5 came, as guessed
  const float after_miss = scores(wrong, {1, 5, 2, 1, 6, 3, 4, 3}).at(0);  // 6 came
  EXPECT_LT(after_miss, after_hit);
}

}  // namespace
}  // namespace coppice
