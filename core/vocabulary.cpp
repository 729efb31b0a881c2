// Reads and checks the tokenizer keys of a GGUF file ("tokenizer.ggml.*",
// "tokenizer.chat_template").
#include <cmath>
#include <limits>

#include "core/byte_bpe.h"
#include "core/pre_tokenizer.h"
#include "core/quote.h"
#include "core/score_merges.h"
#include "core/tokenizer.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kMostMerges = 1 << 24;  // a merge's rank is kept as a float, exact to here

Vocabulary::Kind read_kind(const GgufFile& file) {
  const std::string& model = file.text("tokenizer.ggml.model");
  if (model == "gpt2") return Vocabulary::Kind::byte_bpe;
  if (model == "llama") return Vocabulary::Kind::score_merges;
  throw Error(
      "{}: tokenizer.ggml.model is {}; known are gpt2 (byte-level BPE) and llama (merges "
      "by score)",
      file.name(), quote(model));
}

std::vector<TokenType> read_types(const GgufFile& file) {
  std::vector<TokenType> types;
  for (const int64_t type : file.integers("tokenizer.ggml.token_type")) {
    if (type < 1 || type > 6) {
      throw Error("{}: tokenizer.ggml.token_type[{}] is {}; expected 1 to 6", file.name(),
                  types.size(), type);
    }
    types.push_back(static_cast<TokenType>(type));
  }
  return types;
}

int32_t read_id(const GgufFile& file, std::string_view key, const Vocabulary& vocabulary) {
  const auto last = static_cast<int64_t>(vocabulary.tokens.size()) - 1;
  return static_cast<int32_t>(file.integer_or(key, 0, last, -1));
}

/// Variants of the tokenizers that would give other ids: refused, never ignored.
void refuse_variants(const GgufFile& file, const Vocabulary& vocabulary) {
  const bool score_merges = vocabulary.kind == Vocabulary::Kind::score_merges;
  // Absent means true for merges by score: that is what files from before the key was made want.
  if (file.boolean_or("tokenizer.ggml.add_space_prefix", score_merges)) {
    throw Error(
        "{}: tokenizer.ggml.add_space_prefix is true{}; only vocabularies without a space "
        "prefix are supported",
        file.name(), file.find("tokenizer.ggml.add_space_prefix") ? "" : " when absent");
  }
  if (file.boolean_or("tokenizer.ggml.remove_extra_whitespaces", false)) {
    throw Error("{}: tokenizer.ggml.remove_extra_whitespaces is true, which is not supported",
                file.name());
  }
  if (file.find("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    throw Error("{}: tokenizer.ggml.precompiled_charsmap is not supported", file.name());
  }
}

void check_length(const Vocabulary& vocabulary, std::string_view key, size_t length) {
  if (length != vocabulary.tokens.size()) {
    throw Error("{}: {}{} has {} entries for {} tokens; the file is damaged, fetch it again",
                vocabulary.name, vocabulary.keys, key, length, vocabulary.tokens.size());
  }
}

void check_id(const Vocabulary& vocabulary, std::string_view key, int32_t id) {
  if (id < -1 || id >= static_cast<int64_t>(vocabulary.tokens.size())) {
    throw Error("{}: {}{} is {}; expected an id below {}", vocabulary.name, vocabulary.keys, key,
                id, vocabulary.tokens.size());
  }
}

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  vocabulary.name = file.name();
  vocabulary.kind = read_kind(file);
  vocabulary.tokens = file.texts("tokenizer.ggml.tokens");
  vocabulary.types = read_types(file);
  const bool score_merges = vocabulary.kind == Vocabulary::Kind::score_merges;
  if (score_merges) {
    vocabulary.scores = file.reals("tokenizer.ggml.scores");
  } else {
    vocabulary.pre_tokenizer = file.text("tokenizer.ggml.pre");
    vocabulary.merges = file.texts("tokenizer.ggml.merges");
  }
  refuse_variants(file, vocabulary);
  vocabulary.bos = read_id(file, "tokenizer.ggml.bos_token_id", vocabulary);
  vocabulary.eos = read_id(file, "tokenizer.ggml.eos_token_id", vocabulary);
  vocabulary.eot = read_id(file, "tokenizer.ggml.eot_token_id", vocabulary);
  // Llama 3's vocabulary has words that no merge leads to.
  vocabulary.whole_pieces = vocabulary.pre_tokenizer == "llama-bpe";
  const bool bos_when_absent = score_merges || vocabulary.pre_tokenizer == "llama-bpe";
  vocabulary.add_bos = file.boolean_or("tokenizer.ggml.add_bos_token", bos_when_absent);
  if (file.find("tokenizer.chat_template") != nullptr) {
    vocabulary.chat_template = file.text("tokenizer.chat_template");
  }
  check(vocabulary);
  return vocabulary;
}

void check(const Vocabulary& vocabulary) {
  const std::string& name = vocabulary.name;
  const std::string& keys = vocabulary.keys;
  const size_t most = std::numeric_limits<int32_t>::max();
  if (vocabulary.tokens.empty() || vocabulary.tokens.size() > most) {
    throw Error("{}: {}tokens has {} entries; expected 1 to {}", name, keys,
                vocabulary.tokens.size(), most);
  }
  check_length(vocabulary, "token_type", vocabulary.types.size());
  if (vocabulary.kind == Vocabulary::Kind::byte_bpe) {
    if (!PreTokenizer::is_known(vocabulary.pre_tokenizer)) {
      throw Error("{}: {}pre is {}; known are {}", name, keys, quote(vocabulary.pre_tokenizer),
                  PreTokenizer::known_names());
    }
  } else if (!vocabulary.scores.empty() || vocabulary.merges.empty()) {
    check_length(vocabulary, "scores", vocabulary.scores.size());
    for (size_t i = 0; i < vocabulary.scores.size(); ++i) {
      if (!std::isfinite(vocabulary.scores[i])) {
        throw Error("{}: {}scores[{}] is {}; expected a finite number", name, keys, i,
                    vocabulary.scores[i]);
      }
    }
  }
  if (vocabulary.merges.size() > kMostMerges) {
    throw Error("{}: {}merges has {} entries; at most {} are supported", name, keys,
                vocabulary.merges.size(), kMostMerges);
  }
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == TokenType::byte && byte_of_byte_token(vocabulary.tokens[i]) < 0) {
      throw Error("{}: {}tokens[{}] is {}; expected a byte token such as <0x0A>", name, keys, i,
                  quote(vocabulary.tokens[i]));
    }
  }
  check_id(vocabulary, "bos_token_id", vocabulary.bos);
  check_id(vocabulary, "eos_token_id", vocabulary.eos);
  check_id(vocabulary, "eot_token_id", vocabulary.eot);
  for (const int32_t stop : vocabulary.more_stops) check_id(vocabulary, "eos_token_id", stop);
  if (vocabulary.add_bos && vocabulary.bos < 0) {
    throw Error("{0}: {1}add_bos_token is true, but {1}bos_token_id is absent", name, keys);
  }
}

}  // namespace coppice
