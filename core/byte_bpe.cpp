// Byte-level byte-pair encoding: the table of bytes, the merges, and the loop over pieces.
#include "core/byte_bpe.h"

#include "core/utf8.h"

namespace coppice {
namespace {

/// GPT-2 writes the printable Latin-1 bytes as themselves and the other 68, in order, as U+0100 and
/// up.
constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteTable {
  std::array<char32_t, 256> character_of{};
  std::array<int, 0x144> byte_of{};  // -1: stands for no byte
};

constexpr ByteTable make_byte_table() {
  ByteTable table;
  for (int& byte : table.byte_of) byte = -1;
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
    table.character_of[byte] = character;
    table.byte_of[character] = byte;
  }
  return table;
}

constexpr ByteTable kByteTable = make_byte_table();

int32_t find_id(const std::unordered_map<std::string_view, int32_t>& ids, std::string_view text) {
  const auto found = ids.find(text);
  return found == ids.end() ? -1 : found->second;
}

}  // namespace

std::optional<std::string> bytes_of_byte_text(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Sequence front = utf8_front(text);
    if (front.kind != Utf8Kind::character || front.code_point >= kByteTable.byte_of.size()) {
      return std::nullopt;
    }
    const int byte = kByteTable.byte_of[front.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    text.remove_prefix(front.length);
  }
  return bytes;
}

std::string byte_text_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const char32_t character = kByteTable.character_of[static_cast<uint8_t>(c)];
    if (character < 0x80) {
      text += static_cast<char>(character);
    } else {
      text += static_cast<char>(0xC0 | character >> 6);
      text += static_cast<char>(0x80 | (character & 0x3F));
    }
  }
  return text;
}

ByteBpe::ByteBpe(const Vocabulary& vocabulary,
                 const std::unordered_map<std::string_view, int32_t>& token_ids)
    : pre_tokenizer_(vocabulary.pre_tokenizer), merges_(vocabulary, token_ids) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = find_id(token_ids, byte_text_of_bytes({&c, 1}));
  }
  if (vocabulary.whole_pieces) {
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      if (vocabulary.types[id] != TokenType::normal) continue;
      if (auto bytes = bytes_of_byte_text(vocabulary.tokens[id])) {
        whole_pieces_.emplace(std::move(*bytes), static_cast<int32_t>(id));
      }
    }
  }
}

void ByteBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  SymbolMerger merger;
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t good = well_formed_prefix(text);
    pieces.clear();
    pre_tokenizer_.split(text.substr(0, good), pieces);
    for (const std::string_view piece : pieces) encode_piece(piece, merger, ids);
    text.remove_prefix(good);
    if (text.empty()) break;
    const int32_t id = byte_ids_[static_cast<uint8_t>(text.front())];
    if (id >= 0) ids.push_back(id);
    text.remove_prefix(1);
  }
}

void ByteBpe::encode_piece(std::string_view piece, SymbolMerger& merger,
                           std::vector<int32_t>& ids) const {
  std::string bytes(piece);
  if (const auto found = whole_pieces_.find(bytes); found != whole_pieces_.end()) {
    ids.push_back(found->second);
    return;
  }
  // A byte without a token is gone before any merge, so that its neighbours may join: this is what
  // the models' own tokenizers do.
  std::erase_if(bytes, [this](char c) { return byte_ids_[static_cast<uint8_t>(c)] < 0; });
  merger.symbols.clear();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string_view byte = std::string_view(bytes).substr(i, 1);
    merger.symbols.push_back({byte, byte_ids_[static_cast<uint8_t>(bytes[i])]});
  }
  merger.run([this](const Symbol& left, const Symbol& right) { return merges_.find(left, right); });
  for (const Symbol& symbol : merger.symbols) ids.push_back(symbol.id);
}

}  // namespace coppice
