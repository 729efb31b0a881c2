// Text to token ids and back: byte-level BPE (gpt-2, llama-bpe, qwen2, smollm pre-tokenisers) and
// SentencePiece-style merges by score (gemma).
//
//   Tokenizer tokenizer(read_vocabulary(file));
//   std::vector<int32_t> ids = tokenizer.encode("Hello", SpecialText::literal);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf.h"

namespace coppice {

enum class TokenType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct Vocabulary {
  enum class Kind { byte_bpe, score_merges };
  std::string name;  // file, for messages
  Kind kind = Kind::byte_bpe;
  std::string pre_tokenizer;  // "gpt-2", "llama-bpe", "qwen2", "smollm"
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<float> scores;        // score_merges only
  std::vector<std::string> merges;  // byte_bpe only: "left right", best first
  int32_t bos = -1;                 // -1: none
  int32_t eos = -1;
  int32_t eot = -1;
  bool add_bos = false;
  std::string chat_template;  // empty: none
};

/// Throws Error naming the file and the key at fault: an unknown tokenizer or pre-tokenizer, arrays
/// of another type or length, ids out of range.
Vocabulary read_vocabulary(const GgufFile& file);

enum class SpecialText {
  literal,  // "<|im_end|>" is ordinary text: what a user wrote
  parsed,   // it is the control token: raw prompts and templates
};

class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// No bos is added. Bytes that are not UTF-8 become byte tokens (byte_bpe) or U+FFFD; never fails.
  std::vector<int32_t> encode(std::string_view text, SpecialText special) const;
  /// The bytes an id stands for; empty for control tokens and for ids beyond the vocabulary.
  std::string_view piece(int32_t id) const;
  /// As it is shown to a person who debugs: control tokens by their name.
  std::string_view token_text(int32_t id) const;
  std::string decode(std::span<const int32_t> ids) const;

  int size() const;
  const Vocabulary& vocabulary() const;
  /// The id of a token by its exact text, -1 when there is none.
  int32_t find(std::string_view token) const;
  /// eos, eot and the known end-of-turn tokens that the vocabulary has.
  std::span<const int32_t> stop_ids() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Turns a stream of ids into text, never splitting a UTF-8 character.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// The whole characters that are complete now.
  std::string push(int32_t id);
  /// What was held back; incomplete bytes become U+FFFD.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
};

}  // namespace coppice
