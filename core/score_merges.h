// Merges by score, as SentencePiece's BPE does them (Kudo and Richardson 2018): text starts as its
// characters, and the neighbours whose joined text is the token of highest score are joined first.
// There are no pieces: a merge may cross anything but a special token. Spaces are written U+2581.
// A tokenizer.json lists the merges, best first, where a GGUF file scores the tokens.
//
//   ScoreMerges(vocabulary, token_ids).encode("Hello world", ids);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/merge_table.h"
#include "core/tokenizer.h"

namespace coppice {

/// The byte a token such as "<0x0A>" stands for, -1 for any other text.
int byte_of_byte_token(std::string_view text);
/// A token's text with its U+2581 turned into spaces.
std::string unescape_spaces(std::string_view text);

class ScoreMerges {
 public:
  /// Both must outlive the object.
  ScoreMerges(const Vocabulary& vocabulary,
              const std::unordered_map<std::string_view, int32_t>& token_ids);

  /// Appends the ids of ordinary text. Bytes that are not UTF-8 count as U+FFFD; a character that
  /// is no token becomes its byte tokens, those that the vocabulary has.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  int32_t find_normal(std::string_view text) const;

  const Vocabulary* vocabulary_;
  const std::unordered_map<std::string_view, int32_t>* token_ids_;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  size_t longest_ = 0;                 // bytes of the longest normal token
  std::optional<MergeTable> merges_;   // of a vocabulary that lists its merges, in place of scores
};

}  // namespace coppice
