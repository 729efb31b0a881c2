// Joins the parts: special tokens are cut out of the text, the rest goes through the merges.
#include "core/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "core/byte_bpe.h"
#include "core/quote.h"
#include "core/score_merges.h"
#include "core/special_tokens.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using TokenIds = std::unordered_map<std::string_view, int32_t>;

constexpr size_t kMostBytes = size_t{1} << 30;  // symbols are counted in 32 bits

/// Tokens that end an assistant's turn in the templates in use.
constexpr std::array<std::string_view, 5> kTurnEnds = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>",
                                                       "<|end_of_text|>", "<end_of_turn>"};

TokenIds index_tokens(const Vocabulary& vocabulary) {
  TokenIds ids;
  ids.reserve(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto [first, added] = ids.try_emplace(vocabulary.tokens[id], static_cast<int32_t>(id));
    if (!added) {
      throw Error("{}: {}tokens[{}] and [{}] are both {}; the file is damaged, fetch it again",
                  vocabulary.name, vocabulary.keys, first->second, id,
                  quote(vocabulary.tokens[id]));
    }
  }
  return ids;
}

std::string piece_of(const Vocabulary& vocabulary, size_t id) {
  const std::string& text = vocabulary.tokens[id];
  switch (vocabulary.types[id]) {
    case TokenType::byte:
      return std::string(1, static_cast<char>(byte_of_byte_token(text)));
    case TokenType::normal:
      if (vocabulary.kind == Vocabulary::Kind::score_merges) return unescape_spaces(text);
      return bytes_of_byte_text(text).value_or(text);
    case TokenType::user_defined:
      return text;
    case TokenType::unknown:
    case TokenType::control:
    case TokenType::unused:
      break;
  }
  return {};
}

SpecialTokens find_specials(const Vocabulary& vocabulary, SpecialText special) {
  std::vector<SpecialTokens::Entry> entries;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.types[id];
    const bool parsed_only = type == TokenType::control || type == TokenType::unknown;
    if (type == TokenType::user_defined || (parsed_only && special == SpecialText::parsed)) {
      entries.emplace_back(vocabulary.tokens[id], static_cast<int32_t>(id));
    }
  }
  return SpecialTokens(std::move(entries));
}

std::vector<int32_t> find_stops(const Vocabulary& vocabulary, const TokenIds& ids) {
  std::vector<int32_t> stops;
  for (const int32_t id : {vocabulary.eos, vocabulary.eot}) {
    if (id >= 0) stops.push_back(id);
  }
  stops.insert(stops.end(), vocabulary.more_stops.begin(), vocabulary.more_stops.end());
  for (const std::string_view end : kTurnEnds) {
    const auto found = ids.find(end);
    if (found == ids.end() || vocabulary.types[found->second] != TokenType::control) continue;
    stops.push_back(found->second);
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

std::variant<ByteBpe, ScoreMerges> make_encoder(const Vocabulary& vocabulary, const TokenIds& ids) {
  if (vocabulary.kind == Vocabulary::Kind::byte_bpe) return ByteBpe(vocabulary, ids);
  return ScoreMerges(vocabulary, ids);
}

}  // namespace

struct Tokenizer::State {
  explicit State(Vocabulary given)
      : vocabulary(std::move(given)),
        ids(index_tokens(vocabulary)),
        encoder(make_encoder(vocabulary, ids)),
        literal_specials(find_specials(vocabulary, SpecialText::literal)),
        parsed_specials(find_specials(vocabulary, SpecialText::parsed)),
        stops(find_stops(vocabulary, ids)) {
    pieces.reserve(vocabulary.tokens.size());
    for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
      pieces.push_back(piece_of(vocabulary, id));
    }
  }

  Vocabulary vocabulary;
  TokenIds ids;  // views of vocabulary.tokens
  std::variant<ByteBpe, ScoreMerges> encoder;
  SpecialTokens literal_specials;
  SpecialTokens parsed_specials;
  std::vector<int32_t> stops;
  std::vector<std::string> pieces;
};

Tokenizer::Tokenizer(Vocabulary vocabulary) {
  check(vocabulary);
  state_ = std::make_unique<State>(std::move(vocabulary));
}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, SpecialText special) const {
  if (text.size() > kMostBytes) {
    throw Error("tokenizer: a text of {} bytes; at most {} can be encoded at once", text.size(),
                kMostBytes);
  }
  const SpecialTokens& specials =
      special == SpecialText::parsed ? state_->parsed_specials : state_->literal_specials;
  std::vector<int32_t> ids;
  const auto encode_plain = [&](std::string_view plain) {
    if (plain.empty()) return;
    std::visit([&](const auto& encoder) { encoder.encode(plain, ids); }, state_->encoder);
  };
  size_t at = 0;
  while (const auto match = specials.find(text, at)) {
    encode_plain(text.substr(at, match->begin - at));
    ids.push_back(match->id);
    at = match->begin + match->length;
  }
  encode_plain(text.substr(at));
  return ids;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = encode(text, SpecialText::parsed);
  const int32_t bos = vocabulary().bos;
  if (vocabulary().add_bos && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

std::string_view Tokenizer::piece(int32_t id) const {
  return id >= 0 && id < size() ? std::string_view(state_->pieces[id]) : std::string_view();
}

std::string_view Tokenizer::token_text(int32_t id) const {
  const std::string_view bytes = piece(id);
  if (!bytes.empty() || id < 0 || id >= size()) return bytes;
  return vocabulary().tokens[id];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += piece(id);
  return text;
}

int Tokenizer::size() const {
  return static_cast<int>(state_->pieces.size());
}

const Vocabulary& Tokenizer::vocabulary() const {
  return state_->vocabulary;
}

int32_t Tokenizer::find(std::string_view token) const {
  const auto found = state_->ids.find(token);
  return found == state_->ids.end() ? -1 : found->second;
}

std::span<const int32_t> Tokenizer::stop_ids() const {
  return state_->stops;
}

}  // namespace coppice
