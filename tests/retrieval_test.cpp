// The datastore against search on random texts, against damage and against other tokenizers; and
// retrieval against counts taken by search. Source: He 2023, section 3.
#include "drafters/retrieval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "tests/id_replay.h"
#include "tests/scripted_drafter.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

class RetrievalTest : public testing::Test {
 protected:
  ~RetrievalTest() override { std::filesystem::remove(path_); }

  /// Texts, an end behind each.
  Tokens texts(uint32_t seed, int count, size_t length, int alphabet) {
    Tokens all;
    for (int i = 0; i < count; ++i) {
      const Tokens text = test::phrase_text(seed + static_cast<uint32_t>(i), length, alphabet);
      all.insert(all.end(), text.begin(), text.end());
      all.push_back(Datastore::kEnd);
    }
    return all;
  }
  void write(const Tokens& tokens) { write_datastore(path_, tokens, tokenizer_.vocabulary()); }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  /// What opening these bytes throws; empty: nothing.
  static std::string refusal(const std::string& bytes) {
    std::vector<uint64_t> aligned(bytes.size() / 8 + 1);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    try {
      Datastore("image", std::as_bytes(std::span(aligned)).first(bytes.size()));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / "retrieval_test.store";
  const Tokenizer tokenizer_{test::byte_vocabulary("gpt-2")};
  const MethodParts parts_{.tokenizer = &tokenizer_};
};

size_t occurrences(const Tokens& text, const Tokens& wanted) {
  size_t count = 0;
  for (size_t at = 0; at + wanted.size() <= text.size(); ++at) {
    count += std::equal(wanted.begin(), wanted.end(), text.begin() + static_cast<long>(at));
  }
  return count;
}

TEST_F(RetrievalTest, TheDatastoreFindsWhatASearchFinds) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const Tokens text = texts(static_cast<uint32_t>(trial), 1 + trial % 3, 60, 1 + trial % 5);
    write(text);
    const Datastore store(path_);
    ASSERT_EQ(store.tokens(), text.size());
    for (int query = 0; query < 60; ++query) {
      Tokens context;
      const size_t at = random() % text.size();
      for (size_t i = 0; i < 1 + random() % 6; ++i) {
        if (at + i < text.size() && text[at + i] >= 0) context.push_back(text[at + i]);
      }
      if (query % 3 == 0) context.push_back(static_cast<int32_t>(random() % 5));
      if (context.empty()) continue;
      const Datastore::Range range = store.find(context);
      ASSERT_EQ(range.size(), occurrences(text, context));
      for (size_t place = range.first; place < range.last; ++place) {
        for (size_t i = 0; i < context.size(); ++i) {
          ASSERT_EQ(store.token(place, static_cast<int>(i)), context[i]);
        }
      }
    }
  }
}

// He 2023, section 3.2, by counting: the longest context that occurs, the prefixes of what follows
// it seen most, shorter ones and lower ids first among equals.
void retrieve(DraftJob& job, const Tokens& text, const RetrievalOptions& options) {
  const Tokens known(job.tokens.begin(), job.tokens.end());
  for (int length = std::min<int>(options.max_context, static_cast<int>(known.size()));
       length >= options.min_context; --length) {
    const Tokens context(known.end() - length, known.end());
    if (occurrences(text, context) == 0) continue;
    std::map<Tokens, size_t> seen = {{{}, occurrences(text, context)}};
    for (size_t at = 0; at + context.size() <= text.size(); ++at) {
      if (!std::equal(context.begin(), context.end(), text.begin() + static_cast<long>(at)))
        continue;
      Tokens prefix;
      for (int i = 0; i < options.continuation; ++i) {
        const int32_t token = text[at + context.size() + static_cast<size_t>(i)];
        if (token == Datastore::kEnd) break;
        prefix.push_back(token);
        ++seen[prefix];
      }
    }
    std::vector<std::pair<Tokens, size_t>> nodes(seen.begin(), seen.end());
    std::stable_sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first.size() < b.first.size();
    });
    std::map<Tokens, int> index;
    for (const auto& [prefix, count] : nodes) {
      if (prefix.empty()) {
        index[prefix] = 0;
        continue;
      }
      const Tokens before(prefix.begin(), prefix.end() - 1);
      if (!index.contains(before) || index[before] < 0 || 64 * count < seen[before]) continue;
      index[prefix] = job.tree->add({.parent = index[before], .token = prefix.back()});
    }
    return;
  }
}

TEST_F(RetrievalTest, EmitsAsManyTokensAStepAsCountingBySearch) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    Tokens store = texts(seed, 1, 500, 40);
    write(store);
    Tokens text = test::phrase_text(seed, 700);  // begins as the datastore does
    const Tokens prompt(text.begin() + 480, text.begin() + 520);
    const Tokens answer(text.begin() + 520, text.begin() + 660);
    const RetrievalOptions options{.datastore = path_.string(), .max_nodes = seed % 2 ? 64 : 6};
    Retrieval drafter(options, parts_);
    test::ScriptedDrafter plain(options.max_nodes,
                                [&](DraftJob& job) { retrieve(job, store, options); });
    const test::Replay replay = test::replay_text(drafter, prompt, answer);
    EXPECT_EQ(replay.emitted, test::replay_text(plain, prompt, answer).emitted);
    EXPECT_GT(replay.tokens_per_step(), 1.5);
  }
}

TEST_F(RetrievalTest, KeepsThePrefixesSeenMost) {
  // Behind 7 8: three times 1 (twice 1 2), once 3.
  write({7, 8, 1, 2, -1, 7, 8, 1, 2, -1, 7, 8, 1, 4, -1, 7, 8, 3, 5, -1});
  Retrieval drafter({.datastore = path_.string()}, parts_);
  TokenTree tree;
  const Tokens tokens = {9, 7, 8};
  tree.reset(8, 3);
  DraftJob job;
  job.tokens = tokens;
  job.tree = &tree;
  drafter.propose({&job, 1});
  ASSERT_EQ(tree.size(), 4);
  EXPECT_EQ(tree.token(1), 1);
  EXPECT_EQ(tree.token(2), 2);
  EXPECT_EQ(tree.parent(2), 1);
  EXPECT_EQ(tree.token(3), 3);
  EXPECT_EQ(tree.parent(3), 0);
  EXPECT_GT(tree.score(1), tree.score(3));
}

TEST_F(RetrievalTest, DamagedFilesAreRefused) {
  write(texts(1, 2, 30, 20));
  const std::string good = bytes();
  ASSERT_EQ(refusal(good), "");
  for (size_t size = 0; size < good.size(); size += 3) EXPECT_NE(refusal(good.substr(0, size)), "");
  EXPECT_THAT(refusal(good.substr(0, good.size() - 8)), HasSubstr("cut or damaged"));
  EXPECT_THAT(refusal(good + "12345678"), HasSubstr("cut or damaged"));
  for (size_t at = 0; at < good.size(); ++at) {
    if (at >= 12 && at < 24) continue;  // the tokenizer: another one's is sound in itself
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_NE(refusal(bad), "") << "byte " << at;
  }
  std::string bad = good;
  bad[0] = 'x';
  EXPECT_THAT(refusal(bad), HasSubstr("no datastore"));
  bad = good;
  bad[8] = 9;
  EXPECT_THAT(refusal(bad), HasSubstr("version 9"));
}

TEST_F(RetrievalTest, AnotherTokenizersDatastoreIsRefusedWithWhatDiffers) {
  write(texts(1, 1, 30, 20));
  const auto refused = [&](const Tokenizer& tokenizer) -> std::string {
    try {
      Retrieval({.datastore = path_.string()}, {.tokenizer = &tokenizer});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused(tokenizer_), "");
  const std::string size = std::to_string(tokenizer_.size());
  EXPECT_THAT(refused(Tokenizer(test::byte_vocabulary("gpt-2", {"a b"}))),
              HasSubstr("a tokenizer of " + size + " tokens, the target's has"));
  EXPECT_THAT(refused(Tokenizer(test::byte_vocabulary("qwen2"))),
              HasSubstr("pre-tokenizer differ"));
  EXPECT_THROW(Retrieval({}, parts_), Error);
  EXPECT_THROW(Retrieval({.datastore = "absent.store"}, parts_), Error);
  EXPECT_THROW(Retrieval({.datastore = path_.string(), .max_context = 2, .min_context = 3}, parts_),
               Error);
}

TEST_F(RetrievalTest, AFileThatCannotBeWrittenLeavesNothing) {
  EXPECT_THROW(write_datastore("absent-folder/x.store", Tokens{1, -1}, tokenizer_.vocabulary()),
               Failure);
}

}  // namespace
}  // namespace coppice
