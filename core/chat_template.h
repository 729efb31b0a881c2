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
  /// Throws Error when the vocabulary has no template, an unknown one, or lacks a control token
  /// that the family needs; the remedy is `--raw`. The tokenizer must outlive the object.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  Family family() const { return family_; }
  /// What the template's system turn holds when the messages bring none; empty: no such turn.
  /// A system message takes its place, but for Llama 3.1 and later, where it follows it.
  const std::string& default_system() const { return default_system_; }
  /// Ids of the conversation, ending where the assistant's answer begins, with exactly one bos
  /// where the model wants one. Content is never parsed for control tokens. Throws Error for no
  /// message and, with gemma, for roles that its template refuses: a system message may only come
  /// first, then user and assistant alternate.
  std::vector<int32_t> encode(const std::vector<Message>& messages) const;

 private:
  std::vector<int32_t> encode_chatml(const std::vector<Message>& messages) const;
  std::vector<int32_t> encode_llama3(const std::vector<Message>& messages) const;
  std::vector<int32_t> encode_gemma(const std::vector<Message>& messages) const;
  /// The control token's id; Error when the vocabulary lacks it.
  int32_t control(std::string_view token) const;
  std::string_view content(const Message& message) const;

  const Tokenizer* tokenizer_;
  Family family_;
  std::string default_system_;
  bool trims_;  // the template strips white space around each message
};

}  // namespace coppice
