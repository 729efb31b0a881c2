// Vocabularies from model files: what is read, and what is refused with the file's and key's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/tokenizer.h"
#include "kernels/base/error.h"
#include "tests/gguf_writer.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Strings = std::vector<std::string>;

/// Three letters, two tokens made by merges, two controls.
test::GgufImage byte_image() {
  test::GgufImage image;
  image.key("tokenizer.ggml.model", "gpt2").key("tokenizer.ggml.pre", "qwen2");
  image.key("tokenizer.ggml.tokens", Strings{"a", "b", "c", "ab", "abc", "<s>", "<|im_end|>"});
  image.key("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 1, 1, 3, 3});
  image.key("tokenizer.ggml.merges", Strings{"a b", "ab c"});
  image.key("tokenizer.ggml.bos_token_id", uint32_t{5});
  image.key("tokenizer.ggml.eos_token_id", uint32_t{6});
  return image;
}

test::GgufImage score_image() {
  test::GgufImage image;
  image.key("tokenizer.ggml.model", "llama");
  image.key("tokenizer.ggml.add_space_prefix", false);
  image.key("tokenizer.ggml.tokens", Strings{"<unk>", "<bos>", "<0x0A>", "a", "aa"});
  image.key("tokenizer.ggml.token_type", std::vector<int32_t>{2, 3, 6, 1, 1});
  image.key("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, -2, -1});
  image.key("tokenizer.ggml.bos_token_id", uint32_t{1});
  return image;
}

Vocabulary read(const test::GgufImage& image) {
  const test::Bytes bytes = image.bytes();
  return read_vocabulary(GgufFile("test.gguf", bytes));
}

void refuses(const test::GgufImage& image, const std::string& key, const std::string& why) {
  EXPECT_THAT([&] { Tokenizer tokenizer(read(image)); },
              ThrowsMessage<Error>(AllOf(HasSubstr("test.gguf"), HasSubstr(key), HasSubstr(why))));
}

TEST(Vocabulary, ReadsByteBpe) {
  const Vocabulary vocabulary = read(byte_image().key("tokenizer.chat_template", "{{ x }}"));
  EXPECT_EQ(vocabulary.name, "test.gguf");
  EXPECT_EQ(vocabulary.kind, Vocabulary::Kind::byte_bpe);
  EXPECT_EQ(vocabulary.pre_tokenizer, "qwen2");
  EXPECT_EQ(vocabulary.tokens.size(), 7u);
  EXPECT_EQ(vocabulary.types[5], TokenType::control);
  EXPECT_EQ(vocabulary.merges, (Strings{"a b", "ab c"}));
  EXPECT_EQ(vocabulary.bos, 5);
  EXPECT_EQ(vocabulary.eos, 6);
  EXPECT_EQ(vocabulary.eot, -1);
  EXPECT_FALSE(vocabulary.add_bos);
  EXPECT_EQ(vocabulary.chat_template, "{{ x }}");
  EXPECT_EQ(Tokenizer(vocabulary).encode("abcab", SpecialText::literal),
            (std::vector<int32_t>{4, 3}));
}

TEST(Vocabulary, ReadsScores) {
  const Vocabulary vocabulary = read(score_image());
  EXPECT_EQ(vocabulary.kind, Vocabulary::Kind::score_merges);
  EXPECT_EQ(vocabulary.scores, (std::vector<float>{0, 0, 0, -2, -1}));
  EXPECT_EQ(vocabulary.eos, -1);
  EXPECT_EQ(vocabulary.chat_template, "");
  EXPECT_EQ(Tokenizer(vocabulary).encode("aaa\n", SpecialText::literal),
            (std::vector<int32_t>{4, 3, 2}));
}

TEST(Vocabulary, KnowsWhoWantsABosWhenTheFileIsSilent) {
  EXPECT_FALSE(read(byte_image()).add_bos);
  EXPECT_TRUE(read(byte_image().key("tokenizer.ggml.pre", "llama-bpe")).add_bos);
  EXPECT_TRUE(read(score_image()).add_bos);
  EXPECT_TRUE(read(byte_image().key("tokenizer.ggml.add_bos_token", true)).add_bos);
  EXPECT_FALSE(read(score_image().key("tokenizer.ggml.add_bos_token", false)).add_bos);
}

TEST(Vocabulary, RefusesUnknownTokenizersByName) {
  refuses(byte_image().key("tokenizer.ggml.model", "rwkv"), "tokenizer.ggml.model", "'rwkv'");
  refuses(byte_image().key("tokenizer.ggml.pre", "smaug"), "tokenizer.ggml.pre", "'smaug'");
  refuses(byte_image().without_key("tokenizer.ggml.pre"), "tokenizer.ggml.pre", "");
  refuses(byte_image().without_key("tokenizer.ggml.model"), "tokenizer.ggml.model", "");
}

TEST(Vocabulary, RefusesVariantsThatWouldGiveOtherIds) {
  const std::string prefix = "tokenizer.ggml.add_space_prefix";
  refuses(score_image().key(prefix, true), prefix, "is true");
  refuses(score_image().without_key(prefix), prefix, "true when absent");
  refuses(score_image().key("tokenizer.ggml.remove_extra_whitespaces", true),
          "remove_extra_whitespaces", "not supported");
  refuses(score_image().key("tokenizer.ggml.precompiled_charsmap", std::vector<uint8_t>{1}),
          "precompiled_charsmap", "not supported");
}

TEST(Vocabulary, RefusesArraysOfAnotherTypeOrLength) {
  const std::string types = "tokenizer.ggml.token_type";
  const std::string scores = "tokenizer.ggml.scores";
  refuses(score_image().key(scores, std::vector<uint8_t>{0, 0, 0, 2, 1}), scores, "real");
  refuses(score_image().key(scores, std::vector<float>{0, 0, 0, 2}), scores, "4 entries for 5");
  refuses(score_image().without_key(scores), scores, "");
  refuses(byte_image().key(types, Strings(7, "1")), types, "integer");
  refuses(byte_image().key(types, std::vector<int32_t>(6, 1)), types, "6 entries for 7");
  refuses(byte_image().key(types, std::vector<int32_t>(8, 1)), types, "8 entries for 7");
  refuses(byte_image().key(types, std::vector<int32_t>(7, 0)), types, "is 0");
  refuses(byte_image().key(types, std::vector<int32_t>(7, 7)), types, "is 7");
  refuses(byte_image().key("tokenizer.ggml.tokens", std::vector<int32_t>(7, 1)),
          "tokenizer.ggml.tokens", "text");
  refuses(byte_image().without_key("tokenizer.ggml.merges"), "tokenizer.ggml.merges", "");
}

TEST(Vocabulary, RefusesAnEmptyOne) {
  test::GgufImage image = byte_image();
  image.key("tokenizer.ggml.tokens", Strings{});
  image.key("tokenizer.ggml.token_type", std::vector<int32_t>{});
  image.without_key("tokenizer.ggml.bos_token_id").without_key("tokenizer.ggml.eos_token_id");
  refuses(image, "tokenizer.ggml.tokens", "has 0 entries");
}

TEST(Vocabulary, RefusesTokensThatAreThereTwice) {
  refuses(
      byte_image().key("tokenizer.ggml.tokens", Strings{"a", "b", "c", "ab", "abc", "<s>", "ab"}),
      "tokenizer.ggml.tokens[3] and [6]", "'ab'");
}

TEST(Vocabulary, RefusesMergesThatDoNotFit) {
  const std::string key = "tokenizer.ggml.merges";
  refuses(byte_image().key(key, Strings{"a b", "ab d"}), key + "[1]", "'ab d'");
  refuses(byte_image().key(key, Strings{"a b", "b c"}), key + "[1]", "'b c'");
  for (const char* merge : {"ab", "a b c", "", " "}) {
    refuses(byte_image().key(key, Strings{merge}), key + "[0]", "");
  }
}

TEST(Vocabulary, RefusesIdsOutOfRange) {
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                          "tokenizer.ggml.eot_token_id"}) {
    refuses(byte_image().key(key, uint32_t{7}), key, "7");
    refuses(byte_image().key(key, int32_t{-1}), key, "-1");
    refuses(byte_image().key(key, "1"), key, "integer");
  }
  refuses(score_image().without_key("tokenizer.ggml.bos_token_id"), "tokenizer.ggml.add_bos_token",
          "bos_token_id is absent");
}

TEST(Vocabulary, RefusesOddByteTokens) {
  const std::string key = "tokenizer.ggml.tokens";
  for (const char* text : {"<0x0G>", "<0x-1>", "<0x0A", "0x0A", ""}) {
    refuses(score_image().key(key, Strings{"<unk>", "<bos>", text, "a", "aa"}), key + "[2]",
            "byte token");
  }
}

TEST(Vocabulary, ChecksThoseBuiltByHandAsWell) {
  const auto refuses_changed = [](const std::function<void(Vocabulary&)>& change) {
    Vocabulary vocabulary = test::score_vocabulary({{"a", 0}});
    change(vocabulary);
    EXPECT_THROW(Tokenizer{vocabulary}, Error);
  };
  refuses_changed([](Vocabulary& v) { v.scores.pop_back(); });
  refuses_changed([](Vocabulary& v) { v.types.pop_back(); });
  refuses_changed([](Vocabulary& v) { v.eos = static_cast<int32_t>(v.tokens.size()); });
  refuses_changed([](Vocabulary& v) { v.bos = -1; });
  refuses_changed([](Vocabulary& v) { v.eot = -2; });
  refuses_changed([](Vocabulary& v) { v.scores[256] = std::numeric_limits<float>::quiet_NaN(); });
  EXPECT_THROW(Tokenizer{test::byte_vocabulary("no such pattern")}, Error);
}

}  // namespace
}  // namespace coppice
