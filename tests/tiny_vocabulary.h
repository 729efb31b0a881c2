// Small vocabularies built by hand, one of each kind, for tests and fuzz targets.
//
//   Tokenizer tokenizer(byte_vocabulary("qwen2", {"h e", "l l"}));
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/byte_bpe.h"
#include "core/tokenizer.h"
#include "kernels/base/error.h"

namespace coppice::test {

inline int32_t add_token(Vocabulary& vocabulary, std::string text, TokenType type,
                         float score = 0) {
  vocabulary.tokens.push_back(std::move(text));
  vocabulary.types.push_back(type);
  if (vocabulary.kind == Vocabulary::Kind::score_merges) vocabulary.scores.push_back(score);
  return static_cast<int32_t>(vocabulary.tokens.size()) - 1;
}

/// Ids 0..255 are the bytes, then one token for each merge (those that are new), then "<s>",
/// "<|im_start|>", "<|im_end|>" (control) and "<tool>" (user-defined). bos is "<s>", eos
/// "<|im_end|>".
inline Vocabulary byte_vocabulary(std::string pre_tokenizer, std::vector<std::string> merges = {}) {
  Vocabulary vocabulary;
  vocabulary.name = "tiny.gguf";
  vocabulary.pre_tokenizer = std::move(pre_tokenizer);
  vocabulary.whole_pieces = vocabulary.pre_tokenizer == "llama-bpe";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add_token(vocabulary, byte_text_of_bytes({&c, 1}), TokenType::normal);
  }
  for (const std::string& merge : merges) {
    std::string joined = merge;
    std::erase(joined, ' ');
    const auto& tokens = vocabulary.tokens;
    if (std::find(tokens.begin(), tokens.end(), joined) == tokens.end()) {
      add_token(vocabulary, joined, TokenType::normal);
    }
  }
  vocabulary.merges = std::move(merges);
  vocabulary.bos = add_token(vocabulary, "<s>", TokenType::control);
  add_token(vocabulary, "<|im_start|>", TokenType::control);
  vocabulary.eos = add_token(vocabulary, "<|im_end|>", TokenType::control);
  add_token(vocabulary, "<tool>", TokenType::user_defined);
  return vocabulary;
}

/// Ids 0..255 are the byte tokens, then `normal` (text as people write it, spaces and all, with its
/// score), then "<bos>", "<start_of_turn>", "<end_of_turn>" (control) and "\n\n" (user-defined).
/// bos is "<bos>", which is wanted, and eos "<end_of_turn>".
inline Vocabulary score_vocabulary(const std::vector<std::pair<std::string, float>>& normal) {
  Vocabulary vocabulary;
  vocabulary.name = "tiny.gguf";
  vocabulary.kind = Vocabulary::Kind::score_merges;
  for (int byte = 0; byte < 256; ++byte) {
    add_token(vocabulary, fmt::format("<0x{:02X}>", byte), TokenType::byte);
  }
  for (const auto& [text, score] : normal) {
    std::string escaped;
    for (const char c : text) escaped += c == ' ' ? std::string("\u2581") : std::string(1, c);
    add_token(vocabulary, escaped, TokenType::normal, score);
  }
  vocabulary.bos = add_token(vocabulary, "<bos>", TokenType::control);
  vocabulary.add_bos = true;
  add_token(vocabulary, "<start_of_turn>", TokenType::control);
  vocabulary.eos = add_token(vocabulary, "<end_of_turn>", TokenType::control);
  add_token(vocabulary, "\n\n", TokenType::user_defined);
  return vocabulary;
}

}  // namespace coppice::test
