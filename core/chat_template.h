// The chat formats in use, recognised from a model file's own template: ChatML (with the default
// system prompt its template has), Llama 3, Gemma.
//
//   auto ids = ChatTemplate(tokenizer).encode({{Role::user, "Hello"}});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"

namespace coppice {

enum class Role { system, user, assistant };
struct Message {
  Role role;
  std::string content;
};

class ChatTemplate {
 public:
  enum class Family { chatml, llama3, gemma };
  /// Throws Error when the vocabulary has no template or an unknown one; the remedy is `--raw`.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  Family family() const { return family_; }
  /// The system prompt the template adds when the messages bring none; may be empty.
  const std::string& default_system() const { return default_system_; }
  /// Ids of the conversation, ending where the assistant's answer begins, with exactly one bos
  /// where the model wants one. Content is never parsed for special tokens.
  std::vector<int32_t> encode(const std::vector<Message>& messages) const;

 private:
  const Tokenizer* tokenizer_;
  Family family_;
  std::string default_system_;
};

}  // namespace coppice
