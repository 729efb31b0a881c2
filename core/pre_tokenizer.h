// Cuts text into the pieces that byte-level BPE merges within: words with their leading space,
// numbers, punctuation, white space. The patterns are those of the models' own tokenizers.
//
//   PreTokenizer("qwen2").split("Hi  you", pieces);  // "Hi", " ", " you"
#pragma once

#include <memory>
#include <string_view>
#include <vector>

struct pcre2_real_code_8;

namespace coppice {

class PreTokenizer {
 public:
  static bool is_known(std::string_view name);
  /// "gpt-2", "llama-bpe", "qwen2", "smollm"; separated by commas, for messages.
  static std::string_view known_names();

  /// The pattern that a tokenizer.json spells as this regular expression; empty: it is unknown.
  static std::string_view name_of_regex(std::string_view regex);

  /// The name must be known.
  explicit PreTokenizer(std::string_view name);

  /// Appends the pieces of a well-formed UTF-8 text, in order; joined they are the text.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace coppice
