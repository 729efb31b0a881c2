// Any bytes through every pre-tokenizer and through merges by score: what is encoded decodes to the
// text, and a stream says what decoding says. The first byte picks the vocabulary, the rest is
// text.
//
//   build/debug/fuzz/tokenizer_fuzz -max_total_time=60 tests/fuzz/corpus/tokenizer
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/score_merges.h"
#include "core/tokenizer.h"
#include "core/utf8.h"
#include "kernels/base/error.h"
#include "tests/tiny_vocabulary.h"

namespace {

using namespace coppice;

// Merges meet within a piece, across a character's bytes, and across white space.
Tokenizer byte_tokenizer(const char* pre_tokenizer) {
  return Tokenizer(test::byte_vocabulary(
      pre_tokenizer, {"a a", "aa a", "a b", "\u0120 a", "\u0120 \u0120", "\u010a \u010a", "1 2",
                      "\u00c3 \u00a9", "\u00e2 \u0122", "\u00e2\u0122 \u00a8", "' s"}));
}

const std::array<Tokenizer, 5>& tokenizers() {
  static const std::array<Tokenizer, 5> all = {byte_tokenizer("gpt-2"), byte_tokenizer("llama-bpe"),
                                               byte_tokenizer("qwen2"), byte_tokenizer("smollm"),
                                               Tokenizer(test::score_vocabulary({{" ", -9},
                                                                                 {"a", -8},
                                                                                 {"aa", -2},
                                                                                 {"aaa", -2},
                                                                                 {" a", -1},
                                                                                 {"\u00e9", -3},
                                                                                 {"\u00e9a", -1},
                                                                                 {"<b", -1},
                                                                                 {"<bos", -1},
                                                                                 {"\n", -5}}))};
  return all;
}

void check_stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = stream.push(id);
    COPPICE_CHECK(well_formed_prefix(part) == part.size());
    text += part;
  }
  text += stream.finish();
  COPPICE_CHECK(text == replace_ill_formed(tokenizer.decode(ids)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Tokenizer& tokenizer = tokenizers()[data[0] % tokenizers().size()];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const std::vector<int32_t> literal = tokenizer.encode(text, SpecialText::literal);
  const bool byte_bpe = tokenizer.vocabulary().kind == Vocabulary::Kind::byte_bpe;
  const std::string expected =
      byte_bpe ? std::string(text) : unescape_spaces(replace_ill_formed(text));
  COPPICE_CHECK(tokenizer.decode(literal) == expected);
  check_stream(tokenizer, literal);
  check_stream(tokenizer, tokenizer.encode(text, SpecialText::parsed));

  // Ids as a model may emit them, some beyond the vocabulary.
  std::vector<int32_t> ids;
  for (size_t i = 1; i + 1 < size; i += 2) {
    ids.push_back((data[i] << 8 | data[i + 1]) % (tokenizer.size() + 2));
  }
  check_stream(tokenizer, ids);
  return 0;
}
