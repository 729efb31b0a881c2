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
  std::string name;                      // file, for messages
  std::string keys = "tokenizer.ggml.";  // what its keys begin with, for messages
  Kind kind = Kind::byte_bpe;
  std::string pre_tokenizer;  // "gpt-2", "llama-bpe", "qwen2", "smollm"
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<float> scores;        // score_merges, of each token; empty: it lists its merges
  std::vector<std::string> merges;  // "left right", best first
  bool whole_pieces = false;        // byte_bpe: a piece that is a token is taken whole (Llama 3)
  int32_t bos = -1;                 // -1: none
  int32_t eos = -1;
  int32_t eot = -1;
  std::vector<int32_t> more_stops;  // that end an answer as well
  bool add_bos = false;
  std::string chat_template;  // empty: none
};

/// Throws Error naming the file and the key at fault: an unknown tokenizer or pre-tokenizer, arrays
/// of another type or length, ids out of range, a space prefix (none of our models wants one).
Vocabulary read_vocabulary(const GgufFile& file);

/// What read_vocabulary promises of the parts taken together; the same errors.
void check(const Vocabulary& vocabulary);

enum class SpecialText {
  literal,  // "<|im_end|>" is ordinary text: what a user wrote
  parsed,   // it is the control token: raw prompts and templates
};

class Tokenizer {
 public:
  /// Throws Error naming the file and the key: whatever check() refuses, tokens that are there
  /// twice, merges that do not fit the tokens.
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Any bytes are encoded; no bos is added. First the special tokens are cut out, leftmost and
  /// longest first: user-defined ones always, control and unknown ones when `parsed`. Ill-formed
  /// UTF-8 becomes byte tokens (byte_bpe) or U+FFFD (score_merges). decode(encode(x)) == x, but for
  /// bytes that the vocabulary has no token for, which are left out (SmolLM2 lacks six control
  /// characters and what never occurs in assigned characters), for the text of control tokens when
  /// `parsed`, and, with score_merges, for ill-formed UTF-8 and U+2581, which stands for a space.
  /// Throws Error for texts above 1 GiB.
  std::vector<int32_t> encode(std::string_view text, SpecialText special) const;
  /// A raw prompt: special text is parsed, and exactly one bos stands in front where the model
  /// wants one, whether or not the text already begins with it.
  std::vector<int32_t> encode_prompt(std::string_view text) const;

  /// The bytes an id stands for, not always whole characters; empty for control, unknown and unused
  /// tokens and for ids beyond the vocabulary.
  std::string_view piece(int32_t id) const;
  /// As it is shown to a person who debugs: those with an empty piece by their name.
  std::string_view token_text(int32_t id) const;
  /// The pieces, joined: raw bytes, ill-formed where the ids are. replace_ill_formed (core/utf8.h)
  /// makes it the text that a TextStream gives.
  std::string decode(std::span<const int32_t> ids) const;

  int size() const;
  const Vocabulary& vocabulary() const;
  /// The id of a token by its text as the vocabulary writes it, -1 when there is none.
  int32_t find(std::string_view token) const;
  /// eos, eot and the known end-of-turn tokens that the vocabulary has; each once, ascending.
  std::span<const int32_t> stop_ids() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Turns a stream of ids into text, never splitting a UTF-8 character. All that push and finish
/// return, joined, is replace_ill_formed(decode(ids)): decode(ids) itself where that is UTF-8.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  /// The whole characters that are complete now. Bytes that can no longer become one are U+FFFD.
  std::string push(int32_t id);
  /// What was held back: U+FFFD for an incomplete character, else empty. The stream starts anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;  // the beginning of a character, at most 3 bytes
};

}  // namespace coppice
