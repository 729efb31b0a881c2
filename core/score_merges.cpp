// Merges by score over characters, with byte tokens for what is left.
#include "core/score_merges.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "core/merge_symbols.h"
#include "core/utf8.h"

namespace coppice {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

std::string escape_spaces(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == ' ') {
      result += kSpace;
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

int byte_of_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return -1;
  int byte = -1;
  const char* digits = text.data() + 3;
  const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
  return error == std::errc() && end == digits + 2 ? byte : -1;
}

std::string unescape_spaces(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpace)) {
      result += ' ';
      at += kSpace.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

ScoreMerges::ScoreMerges(const Vocabulary& vocabulary,
                         const std::unordered_map<std::string_view, int32_t>& token_ids)
    : vocabulary_(&vocabulary), token_ids_(&token_ids) {
  if (vocabulary.scores.empty()) merges_.emplace(vocabulary, token_ids);
  byte_ids_.fill(-1);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (vocabulary.types[id] == TokenType::byte) {
      byte_ids_[byte_of_byte_token(text)] = static_cast<int32_t>(id);
    } else if (vocabulary.types[id] == TokenType::normal) {
      longest_ = std::max(longest_, text.size());
    }
  }
}

// Only normal tokens: text that a user wrote must not grow into a control token, nor "<0x0A>" into
// a line end.
int32_t ScoreMerges::find_normal(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const auto found = token_ids_->find(text);
  if (found == token_ids_->end()) return -1;
  return vocabulary_->types[found->second] == TokenType::normal ? found->second : -1;
}

void ScoreMerges::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::string escaped = escape_spaces(replace_ill_formed(text));
  SymbolMerger merger;
  for (std::string_view rest = escaped; !rest.empty();) {
    const std::string_view character = rest.substr(0, utf8_front(rest).length);
    merger.symbols.push_back({character, find_normal(character)});
    rest.remove_prefix(character.size());
  }
  merger.run([this](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    if (merges_) return merges_->find(left, right);
    const int32_t id = find_normal({left.text.data(), left.text.size() + right.text.size()});
    if (id < 0) return std::nullopt;
    return Merge{-vocabulary_->scores[id], id};
  });
  for (const Symbol& symbol : merger.symbols) {
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
      continue;
    }
    for (const char c : symbol.text) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
      if (id >= 0) ids.push_back(id);
    }
  }
}

}  // namespace coppice
