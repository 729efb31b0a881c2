// The tokenizer over small vocabularies: merges against their plain definition, special tokens,
// hostile bytes, round trips.
#include "core/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/pre_tokenizer.h"
#include "core/utf8.h"
#include "kernels/base/error.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

Strings split(std::string_view name, std::string_view text) {
  std::vector<std::string_view> pieces;
  PreTokenizer(name).split(text, pieces);
  return {pieces.begin(), pieces.end()};
}

TEST(PreTokenizer, CutsAsEachModelDoes) {
  const std::string text = "I've  1234 CAN'T\n\n go!\n";
  EXPECT_THAT(split("gpt-2", text),
              ElementsAre("I", "'ve", " ", " 1234", " CAN", "'", "T", "\n\n", " go", "!", "\n"));
  EXPECT_THAT(split("smollm", text), ElementsAre("I", "'ve", "  ", "1", "2", "3", "4", " CAN", "'",
                                                 "T", "\n\n", " go", "!", "\n"));
  EXPECT_THAT(split("qwen2", text), ElementsAre("I", "'ve", " ", " ", "1", "2", "3", "4", " CAN",
                                                "'T", "\n\n", " go", "!\n"));
  EXPECT_THAT(split("llama-bpe", text),
              ElementsAre("I", "'ve", " ", " ", "123", "4", " CAN", "'T", "\n\n", " go", "!\n"));
}

TEST(PreTokenizer, KnowsUnicodeWhiteSpace) {
  // U+0085, U+2029 and U+3000 are white space; U+180E has not been since Unicode 6.3.
  EXPECT_THAT(split("gpt-2", "a\u0085\u2029\u3000b"),
              ElementsAre("a", "\u0085\u2029", "\u3000", "b"));
  EXPECT_THAT(split("gpt-2", "a\u180E\u180Eb"), ElementsAre("a", "\u180E\u180E", "b"));
  EXPECT_THAT(split("gpt-2", "a\u180E b"), ElementsAre("a", "\u180E", " b"));
  EXPECT_THAT(split("qwen2", "\u2029 \ua000"), ElementsAre("\u2029", " \ua000"));
}

TEST(PreTokenizer, LeavesNothingOut) {
  EXPECT_TRUE(rc::check("joined pieces are the text", [](const std::string& bytes) {
    const std::string text = replace_ill_formed(bytes);
    for (const char* name : {"gpt-2", "smollm", "qwen2", "llama-bpe"}) {
      std::string joined;
      for (const std::string& piece : split(name, text)) joined += piece;
      RC_ASSERT(joined == text);
    }
  }));
}

// The definition: again and again, of all neighbours that may join, the best; leftmost among
// equals.
template <class Find>
Ids merge_slowly(std::vector<std::pair<std::string, int32_t>> symbols, const Find& find) {
  while (true) {
    double best_order = std::numeric_limits<double>::infinity();
    size_t best = 0;
    int32_t best_id = -1;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto [order, id] = find(symbols[i], symbols[i + 1]);
      if (id >= 0 && order < best_order) {
        best_order = order;
        best = i;
        best_id = id;
      }
    }
    if (best_id < 0) break;
    symbols[best] = {symbols[best].first + symbols[best + 1].first, best_id};
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const auto& symbol : symbols) ids.push_back(symbol.second);
  return ids;
}

/// Texts of few letters, in which merges meet each other.
rc::Gen<std::string> abc_text(int most) {
  return rc::gen::resize(most, rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')));
}

/// Merges that lead from bytes upwards, in an order that need not be the order they were made in.
std::vector<std::string> random_merges() {
  Strings parts = {"a", "b", "c"};
  std::vector<std::string> merges;
  const int count = *rc::gen::inRange(0, 16);
  for (int i = 0; i < count; ++i) {
    const std::string left = *rc::gen::elementOf(parts);
    const std::string right = *rc::gen::elementOf(parts);
    merges.push_back(left + " " + right);
    if (std::find(parts.begin(), parts.end(), left + right) == parts.end()) {
      parts.push_back(left + right);
    }
  }
  for (size_t i = 1; i < merges.size(); ++i) {
    std::swap(merges[i], merges[*rc::gen::inRange<size_t>(0, i + 1)]);
  }
  return merges;
}

RC_GTEST_PROP(ByteBpe, MergesAsDefined, ()) {
  const std::vector<std::string> merges = random_merges();
  const std::string text = *abc_text(60);
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2", merges));
  std::vector<std::pair<std::string, int32_t>> bytes;
  for (const char c : text) bytes.emplace_back(std::string(1, c), c);
  const Ids expected = merge_slowly(bytes, [&](const auto& left, const auto& right) {
    const auto found = std::find(merges.begin(), merges.end(), left.first + " " + right.first);
    if (found == merges.end()) return std::pair(0.0, -1);
    return std::pair(static_cast<double>(found - merges.begin()),
                     tokenizer.find(left.first + right.first));
  });
  RC_ASSERT(tokenizer.encode(text, SpecialText::literal) == expected);
}

RC_GTEST_PROP(ScoreMerges, MergesAsDefined, ()) {
  // Scores repeat, so that ties occur; some characters are no token.
  const auto scores = *rc::gen::container<std::map<std::string, int>>(
      rc::gen::nonEmpty(abc_text(5)), rc::gen::inRange(-3, 3));
  std::vector<std::pair<std::string, float>> normal;
  for (const auto& [text, score] : scores) normal.emplace_back(text, static_cast<float>(score));
  const std::string text = *abc_text(60);
  const Tokenizer tokenizer(test::score_vocabulary(normal));
  std::vector<std::pair<std::string, int32_t>> letters;
  for (const char c : text) {
    const int32_t id = tokenizer.find(std::string(1, c));
    letters.emplace_back(std::string(1, c), id >= 0 ? id : c);  // byte tokens have the first ids
  }
  const Ids expected = merge_slowly(letters, [&](const auto& left, const auto& right) {
    const auto found = scores.find(left.first + right.first);
    if (found == scores.end()) return std::pair(0.0, -1);
    return std::pair(-static_cast<double>(found->second), tokenizer.find(found->first));
  });
  RC_ASSERT(tokenizer.encode(text, SpecialText::literal) == expected);
}

TEST(ByteBpe, TakesALlama3PieceThatIsATokenWhole) {
  // No merge leads to "abc", only "a b" to "ab".
  for (const auto& [pre, whole] : {std::pair("llama-bpe", true), std::pair("qwen2", false)}) {
    Vocabulary vocabulary = test::byte_vocabulary(pre, {"a b"});
    const int32_t abc = test::add_token(vocabulary, "abc", TokenType::normal);
    const Tokenizer tokenizer(std::move(vocabulary));
    const Ids merged = {tokenizer.find("ab"), 'c'};
    EXPECT_EQ(tokenizer.encode("abc", SpecialText::literal), whole ? Ids{abc} : merged);
  }
}

TEST(ByteBpe, LeavesOutBytesWithoutATokenBeforeItMerges) {
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2", {"! \""});
  vocabulary.tokens['#'] = "taken away";
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.encode("!#\"#", SpecialText::literal), Ids{tokenizer.find("!\"")});
}

TEST(ByteBpe, KeepsAnyBytes) {
  for (const char* pre : {"gpt-2", "smollm", "qwen2", "llama-bpe"}) {
    const Tokenizer tokenizer(test::byte_vocabulary(pre, {"a b", "\u0120 a", "\u00e2 \u0122"}));
    const auto keeps = [&](const std::string& bytes) {
      return tokenizer.decode(tokenizer.encode(bytes, SpecialText::literal)) == bytes;
    };
    EXPECT_TRUE(keeps(std::string("a\0b", 3)));
    EXPECT_TRUE(keeps("\xE2\x80"));
    EXPECT_TRUE(keeps("\xE6\xAD"));
    EXPECT_TRUE(keeps("\xFF\xFE"));
    EXPECT_TRUE(keeps("\xED\xA0\x80 lone surrogate"));
    EXPECT_TRUE(keeps(std::string(1 << 20, '\x80')));
    EXPECT_TRUE(rc::check("decode(encode(bytes)) == bytes",
                          [&](const std::string& bytes) { RC_ASSERT(keeps(bytes)); }));
    EXPECT_TRUE(rc::check("few letters", [&] {
      RC_ASSERT(keeps(*rc::gen::container<std::string>(
          rc::gen::element('a', 'b', ' ', '\n', '1', '\'', '\xE2', '\x80', '\xA8'))));
    }));
  }
}

TEST(ByteBpe, MakesIllFormedBytesByteTokens) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  EXPECT_EQ(tokenizer.encode("a\xFF\xE2\x80z", SpecialText::literal),
            (Ids{'a', 0xFF, 0xE2, 0x80, 'z'}));
}

TEST(ScoreMerges, KeepsUtf8) {
  const Tokenizer tokenizer(
      test::score_vocabulary({{" ", -9}, {"a", -8}, {" a", -1}, {"\u00e9", -3}, {"aa", -2}}));
  const auto keeps = [&](const std::string& text) {
    return tokenizer.decode(tokenizer.encode(text, SpecialText::literal)) == text;
  };
  EXPECT_TRUE(keeps("  a  a\n\n\n "));
  EXPECT_TRUE(keeps(std::string("a\0\u00e9\U0001F600", 8)));
  EXPECT_TRUE(rc::check("decode(encode(text)) == text", [&](const std::string& bytes) {
    const std::string text = replace_ill_formed(bytes);
    RC_PRE(text.find("\u2581") == std::string::npos);
    RC_ASSERT(keeps(text));
  }));
  // U+2581 is how the vocabulary writes a space.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("\u2581", SpecialText::literal)), " ");
}

TEST(ScoreMerges, TakesIllFormedBytesForTheReplacementCharacter) {
  const Tokenizer tokenizer(test::score_vocabulary({{"a", 0}}));
  for (const std::string bytes : {"\xE2\x80", "\xE6\xAD", "a\xFF\xFE", "\xED\xA0\x80"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes, SpecialText::literal)),
              replace_ill_formed(bytes));
  }
  const std::string many(1 << 20, '\x80');
  EXPECT_EQ(tokenizer.encode(many, SpecialText::literal).size(), 3u << 20);
}

TEST(ScoreMerges, NeverMergesIntoAControlOrByteToken) {
  // Each step up to "<bos>" is a token, so that merges alone would reach it.
  Vocabulary vocabulary = test::score_vocabulary(
      {{"<b", 1}, {"<bo", 2}, {"<bos", 3}, {"<0", 1}, {"<0x", 2}, {"<0x0", 3}, {"<0x0A", 4}});
  const int32_t bos = vocabulary.bos;
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.encode("<bos>", SpecialText::literal), (Ids{tokenizer.find("<bos"), '>'}));
  EXPECT_EQ(tokenizer.encode("<bos>", SpecialText::parsed), Ids{bos});
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<0x0A>", SpecialText::parsed)), "<0x0A>");
}

TEST(Tokenizer, MatchesSpecialTokensLeftmostAndLongest) {
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2");
  const int32_t one = test::add_token(vocabulary, "<|a|>", TokenType::control);
  const int32_t two = test::add_token(vocabulary, "<|a|><|b|>", TokenType::control);
  const int32_t overlap = test::add_token(vocabulary, "|><|b", TokenType::control);
  test::add_token(vocabulary, "", TokenType::control);
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.encode("<|a|><|b|><|a|>x|><|b", SpecialText::parsed),
            (Ids{two, one, 'x', overlap}));
  EXPECT_EQ(tokenizer.encode("<|a|><|c", SpecialText::parsed), (Ids{one, '<', '|', 'c'}));
}

TEST(Tokenizer, ParsesControlTokensOnlyWhenAsked) {
  const Tokenizer tokenizer(test::byte_vocabulary("qwen2"));
  const int32_t end = tokenizer.find("<|im_end|>");
  const int32_t tool = tokenizer.find("<tool>");
  EXPECT_EQ(tokenizer.encode("<tool><|im_end|>", SpecialText::parsed), (Ids{tool, end}));
  const Ids literal = tokenizer.encode("<tool><|im_end|>", SpecialText::literal);
  EXPECT_EQ(literal.size(), 1 + std::string("<|im_end|>").size());
  EXPECT_EQ(literal.front(), tool);
  EXPECT_EQ(tokenizer.decode(literal), "<tool><|im_end|>");
}

TEST(Tokenizer, PutsExactlyOneBosBeforeAPrompt) {
  for (const bool add_bos : {false, true}) {
    Vocabulary vocabulary = test::byte_vocabulary("gpt-2");
    vocabulary.add_bos = add_bos;
    const int32_t bos = vocabulary.bos;
    const Tokenizer tokenizer(std::move(vocabulary));
    EXPECT_EQ(tokenizer.encode_prompt("x"), add_bos ? (Ids{bos, 'x'}) : Ids{'x'});
    EXPECT_EQ(tokenizer.encode_prompt("<s>x"), (Ids{bos, 'x'}));
    EXPECT_EQ(tokenizer.encode_prompt(""), add_bos ? Ids{bos} : Ids{});
    EXPECT_EQ(tokenizer.encode("x", SpecialText::parsed), Ids{'x'});
  }
}

TEST(Tokenizer, GivesEachIdItsPiece) {
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2", {"\u0120 h"});
  const int32_t unused = test::add_token(vocabulary, "[PAD7]", TokenType::unused);
  // A normal token outside of the byte table stands for its text.
  const int32_t odd = test::add_token(vocabulary, "\u65e5 x", TokenType::normal);
  const Tokenizer tokenizer(std::move(vocabulary));
  const int32_t control = tokenizer.find("<s>");
  EXPECT_EQ(tokenizer.piece(tokenizer.find("\u0120h")), " h");
  EXPECT_EQ(tokenizer.piece(control), "");
  EXPECT_EQ(tokenizer.token_text(control), "<s>");
  EXPECT_EQ(tokenizer.piece(unused), "");
  EXPECT_EQ(tokenizer.token_text(unused), "[PAD7]");
  EXPECT_EQ(tokenizer.piece(odd), "\u65e5 x");
  EXPECT_EQ(tokenizer.token_text(0xE9), "\xE9");
  for (const int32_t beyond : {tokenizer.size(), std::numeric_limits<int32_t>::max(), -1}) {
    EXPECT_EQ(tokenizer.piece(beyond), "");
    EXPECT_EQ(tokenizer.token_text(beyond), "");
  }
  EXPECT_EQ(tokenizer.decode(Ids{'a', control, tokenizer.size() + 7, 'b'}), "ab");
  EXPECT_EQ(tokenizer.find("no such token"), -1);
}

TEST(Tokenizer, StopsAtEveryEndOfTurn) {
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2");
  const int32_t im_end = vocabulary.eos;
  vocabulary.eos = test::add_token(vocabulary, "<|endoftext|>", TokenType::control);
  const int32_t eos = vocabulary.eos;
  // Not a control token: what a model says about templates must not end its answer.
  test::add_token(vocabulary, "<end_of_turn>", TokenType::normal);
  vocabulary.eot = test::add_token(vocabulary, "<|eot_id|>", TokenType::control);
  const int32_t eot = vocabulary.eot;
  const Tokenizer tokenizer(std::move(vocabulary));
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(im_end, eos, eot));
}

TEST(Tokenizer, DoesNotStopAtAnEndOfTextThatIsNotTheEnd) {
  Vocabulary vocabulary = test::byte_vocabulary("gpt-2");
  test::add_token(vocabulary, "<|endoftext|>", TokenType::control);
  const int32_t eos = vocabulary.eos;
  EXPECT_THAT(Tokenizer(std::move(vocabulary)).stop_ids(), ElementsAre(eos));
}

}  // namespace
}  // namespace coppice
