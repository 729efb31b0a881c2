// UTF-8 by the Unicode Standard's table, and streams of ids that split characters.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/tokenizer.h"
#include "core/utf8.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using Ids = std::vector<int32_t>;

std::string utf8(char32_t c) {
  std::string text;
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
  return text;
}

TEST(Utf8, ReadsEveryCharacterAndNoSurrogate) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const std::string text = utf8(c) + "!";
    const Utf8Sequence front = utf8_front(text);
    if (c >= 0xD800 && c <= 0xDFFF) {
      ASSERT_EQ(front.kind, Utf8Kind::ill_formed) << static_cast<uint32_t>(c);
      continue;
    }
    ASSERT_EQ(front.kind, Utf8Kind::character) << static_cast<uint32_t>(c);
    ASSERT_EQ(front.length, text.size() - 1) << static_cast<uint32_t>(c);
    ASSERT_EQ(front.code_point, c);
  }
  EXPECT_EQ(utf8_front(utf8(0x110000)).kind, Utf8Kind::ill_formed);
}

// The Unicode Standard 15.0, section 3.9, tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string bad = "\uFFFD";
  const auto times = [&](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += bad;
    return text;
  };
  EXPECT_EQ(replace_ill_formed("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), times(8) + "A");
  EXPECT_EQ(replace_ill_formed("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), times(8) + "A");
  EXPECT_EQ(replace_ill_formed("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            times(5) + "A" + times(2) + "B");
  EXPECT_EQ(replace_ill_formed("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), times(4) + "A");
  EXPECT_EQ(replace_ill_formed("ok\xF0\x9F\x98"), "ok" + bad);
  EXPECT_EQ(well_formed_prefix("a\u00e9\xE2\x80"), 3u);
}

/// What a stream gives, push by push; every part is well-formed.
std::vector<std::string> stream(const Tokenizer& tokenizer, const Ids& ids) {
  TextStream text(tokenizer);
  std::vector<std::string> parts;
  for (const int32_t id : ids) parts.push_back(text.push(id));
  parts.push_back(text.finish());
  for (const std::string& part : parts) EXPECT_EQ(well_formed_prefix(part), part.size());
  return parts;
}

TEST(TextStream, WaitsForWholeCharacters) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  EXPECT_EQ(stream(tokenizer, {'a', 0xF0, 0x9F, 0x98, 0x80, 'b'}),
            (std::vector<std::string>{"a", "", "", "", "\U0001F600", "b", ""}));
  // A control token between the bytes of a character says nothing.
  EXPECT_EQ(stream(tokenizer, {0xC3, tokenizer.find("<s>"), 0xA9}),
            (std::vector<std::string>{"", "", "\u00e9", ""}));
}

TEST(TextStream, ReplacesWhatCannotBecomeACharacter) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  EXPECT_EQ(stream(tokenizer, {0xE2, 0x80, 'z', 0xFF}),
            (std::vector<std::string>{"", "", "\uFFFDz", "\uFFFD", ""}));
  EXPECT_EQ(stream(tokenizer, {0xF0, 0x9F}), (std::vector<std::string>{"", "", "\uFFFD"}));
}

TEST(TextStream, StartsAnewAfterItsEnd) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  TextStream text(tokenizer);
  text.push(0xC3);
  EXPECT_EQ(text.finish(), "\uFFFD");
  EXPECT_EQ(text.finish(), "");
  EXPECT_EQ(text.push(0xA9), "\uFFFD");
}

void streams_what_it_decodes(const Tokenizer& tokenizer, const std::vector<Ids>& parts) {
  EXPECT_TRUE(rc::check("the stream is the decoded text", [&] {
    const auto some = *rc::gen::container<std::vector<Ids>>(rc::gen::elementOf(parts));
    Ids ids;
    for (const Ids& part : some) ids.insert(ids.end(), part.begin(), part.end());
    std::string streamed;
    for (const std::string& text : stream(tokenizer, ids)) streamed += text;
    const std::string decoded = tokenizer.decode(ids);
    RC_ASSERT(streamed == replace_ill_formed(decoded));
    if (well_formed_prefix(decoded) == decoded.size()) RC_ASSERT(streamed == decoded);
  }));
}

TEST(TextStream, StreamsWhatBytesDecodeTo) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2", {"\u0120 \u0120", "\u00e2 \u0124"}));
  // Whole characters, their halves, spaces, what decodes to nothing.
  streams_what_it_decodes(tokenizer, {{'a'},
                                      {' '},
                                      {tokenizer.find("\u0120\u0120")},
                                      {0xC3, 0xA9},
                                      {0xE2},
                                      {0x82},
                                      {tokenizer.find("\u00e2\u0124")},
                                      {0xAC},
                                      {0xF0},
                                      {0x9F},
                                      {tokenizer.find("<s>")},
                                      {tokenizer.size()}});
}

TEST(TextStream, KeepsLeadingSpacesOfEveryToken) {
  const Tokenizer tokenizer(test::score_vocabulary({{" ", -3}, {"  ", -2}, {" a", -1}, {"a", 0}}));
  EXPECT_EQ(stream(tokenizer, {256, 257, 258, 259, 256}),
            (std::vector<std::string>{" ", "  ", " a", "a", " ", ""}));
  streams_what_it_decodes(tokenizer, {{256}, {257}, {258}, {259}, {0xC3}, {0xA9}, {0xF0}});
}

}  // namespace
}  // namespace coppice
