// Byte-level byte-pair encoding, as GPT-2 brought it in (Radford et al. 2019, section 2.2; merges
// after Sennrich et al. 2016, algorithm 1): text is cut into pieces, each piece starts as its
// bytes, and the listed merges are applied, best first.
//
//   ByteBpe(vocabulary, token_ids).encode("Hello world", ids);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/merge_symbols.h"
#include "core/merge_table.h"
#include "core/pre_tokenizer.h"
#include "core/tokenizer.h"

namespace coppice {

/// The bytes behind a token's text, which writes each byte as one printable character (GPT-2's
/// table: "Ġ" is a space). Empty optional: some character stands for no byte.
std::optional<std::string> bytes_of_byte_text(std::string_view text);
/// The other way: "Ġhi" for " hi".
std::string byte_text_of_bytes(std::string_view bytes);

class ByteBpe {
 public:
  /// `token_ids`: text to id; used here only. Throws Error naming a merge that does not fit.
  ByteBpe(const Vocabulary& vocabulary,
          const std::unordered_map<std::string_view, int32_t>& token_ids);

  /// Appends the ids of ordinary text. Bytes that are not UTF-8 become their single-byte tokens; a
  /// byte the vocabulary has no token for is left out.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  void encode_piece(std::string_view piece, SymbolMerger& merger, std::vector<int32_t>& ids) const;

  PreTokenizer pre_tokenizer_;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  MergeTable merges_;
  std::unordered_map<std::string, int32_t> whole_pieces_;  // taken before any merge; may be empty
};

}  // namespace coppice
