// The suffix automaton against search on random strings, and SAM decoding against a plain search on
// texts that repeat themselves. Source: Hu 2024, section 3.
#include "drafters/sam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/id_replay.h"
#include "tests/scripted_drafter.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using Tokens = std::vector<int32_t>;

/// Longest suffix of `query` that occurs in `text`, and where it first ends there.
std::pair<int, int> longest_match(const Tokens& text, const Tokens& query) {
  for (size_t length = query.size(); length > 0; --length) {
    const auto suffix = query.end() - static_cast<long>(length);
    const auto found = std::search(text.begin(), text.end(), suffix, query.end());
    if (found != text.end()) {
      return {static_cast<int>(length),
              static_cast<int>(found - text.begin() + static_cast<long>(length)) - 1};
    }
  }
  return {0, -1};
}

TEST(SuffixAutomaton, MatchesWhatASearchFinds) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const auto alphabet = static_cast<uint32_t>(1 + trial % 4);
    const auto draw = [&] { return static_cast<int32_t>(random() % alphabet); };
    SuffixAutomaton automaton;
    SuffixAutomaton::Match own, other;
    Tokens text, query;
    for (int i = 0; i < 50; ++i) {
      const int32_t token = draw();  // matched against the text before it
      Tokens end = text;
      end.push_back(token);
      own = automaton.advance(own, token);
      const auto [length, first_end] = longest_match(text, end);
      ASSERT_EQ(own.length, length);
      if (length > 0) {
        ASSERT_EQ(automaton.first_end(own), first_end);
      }
      text.push_back(token);
      automaton.append(token);
      query.push_back(draw());  // another text, while this one grows
      other = automaton.advance(other, query.back());
      const auto [other_length, other_end] = longest_match(text, query);
      // What is appended later may make the other's match longer than it was followed.
      ASSERT_LE(other.length, other_length);
    }
    // Once the text is complete the other's match is the longest, and so are its followers.
    for (int i = 0; i < 60; ++i) {
      query.push_back(draw());
      other = automaton.advance(other, query.back());
      if (i < 50) continue;
      const auto [length, end] = longest_match(text, query);
      ASSERT_EQ(other.length, length);
      ASSERT_EQ(automaton.first_end(other), end);
      std::set<int32_t> followers;
      for (size_t at = 0; at + static_cast<size_t>(length) < text.size(); ++at) {
        if (std::equal(query.end() - length, query.end(), text.begin() + static_cast<long>(at))) {
          followers.insert(text[at + static_cast<size_t>(length)]);
        }
      }
      ASSERT_EQ(automaton.followers(other), static_cast<int32_t>(followers.size()));
    }
  }
}

TEST(SamDecoding, EmitsAsManyTokensAStepAsAPlainSearch) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const auto text = test::phrase_text(seed, 300);
    const Tokens prompt(text.begin(), text.begin() + 80), answer(text.begin() + 80, text.end());
    SamDecoding drafter(SamOptions{}, {});
    test::ScriptedDrafter plain(40, [](DraftJob& job) {
      const Tokens known(job.tokens.begin(), job.tokens.end());
      const Tokens before(known.begin(), known.end() - 1);
      // The earlier occurrence may not be the text's own end.
      const auto [length, end] = longest_match(before, known);
      const int most = std::min({40, 4 * length, static_cast<int>(known.size()) - end - 1});
      if (length > 0) test::add_chain(*job.tree, std::span(known).subspan(end + 1, most));
    });
    const test::Replay replay = test::replay_text(drafter, prompt, answer);
    EXPECT_EQ(replay.emitted, test::replay_text(plain, prompt, answer).emitted);
    EXPECT_GT(replay.tokens_per_step(), 1.3);
  }
}

TEST(SamDecoding, ReadsACorpusAndPrefersItOnlyWhenItKnowsMuchMore) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "sam_corpus_test.txt";
  const std::string text = "abcdefghijklmnop";
  std::ofstream(file) << text;
  const Tokens corpus = tokenizer.encode(text, SpecialText::literal);
  ASSERT_GT(corpus.size(), 10u);
  const MethodParts parts{.tokenizer = &tokenizer};
  const auto chain = [&](int static_bias, size_t known) {
    SamDecoding drafter({.draft_length = 2, .corpus = file.string(), .static_bias = static_bias},
                        parts);
    TokenTree tree;
    const Tokens tokens(corpus.begin(), corpus.begin() + static_cast<long>(known));
    tree.reset(tokens.back(), 40);
    DraftJob job;
    job.tokens = tokens;
    job.tree = &tree;
    drafter.propose({&job, 1});
    Tokens found;
    for (int node = 1; node < tree.size(); ++node) found.push_back(tree.token(node));
    return found;
  };
  EXPECT_EQ(chain(5, 6), (Tokens{corpus[6], corpus[7]}));
  EXPECT_EQ(chain(5, 5), Tokens());  // the match is not longer by more than 5
  EXPECT_EQ(chain(0, 1), (Tokens{corpus[1], corpus[2]}));
  std::filesystem::remove(file);
  EXPECT_THROW(SamDecoding({.corpus = file.string()}, parts), Error);
}

}  // namespace
}  // namespace coppice
