// Renders conversations straight to ids: control tokens by id, all between two of them as one text,
// as the models' own templates and tokenizers do it.
#include "core/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/utf8.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

/// Text between two control tokens is encoded at once: merges may join a role's line end and the
/// message behind it.
class Rendering {
 public:
  explicit Rendering(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  Rendering& control(int32_t id) {
    flush();
    ids_.push_back(id);
    return *this;
  }
  Rendering& text(std::string_view more) {
    text_ += more;
    return *this;
  }
  std::vector<int32_t> finish() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    const auto ids = tokenizer_->encode(text_, SpecialText::literal);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    text_.clear();
  }

  const Tokenizer* tokenizer_;
  std::vector<int32_t> ids_;
  std::string text_;
};

std::string_view role_name(Role role) {
  switch (role) {
    case Role::system:
      return "system";
    case Role::user:
      return "user";
    case Role::assistant:
      break;
  }
  return "assistant";
}

/// What str.strip() removes, which the templates' `trim` filter is: White_Space and U+001C..1F.
bool is_stripped(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 10> kRanges = {{{0x09, 0x0D},
                                                                      {0x1C, 0x20},
                                                                      {0x85, 0x85},
                                                                      {0xA0, 0xA0},
                                                                      {0x1680, 0x1680},
                                                                      {0x2000, 0x200A},
                                                                      {0x2028, 0x2029},
                                                                      {0x202F, 0x202F},
                                                                      {0x205F, 0x205F},
                                                                      {0x3000, 0x3000}}};
  return std::any_of(kRanges.begin(), kRanges.end(),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

std::string_view strip(std::string_view text) {
  size_t begin = text.size();
  size_t end = text.size();
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence front = utf8_front(text.substr(at));
    if (!is_stripped(front.code_point)) {
      begin = std::min(begin, at);
      end = at + front.length;
    }
    at += front.length;
  }
  return text.substr(begin, end - begin);
}

/// A Jinja string literal's escapes, those that prompts use.
std::string unescape(std::string_view literal) {
  std::string text;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      text += literal[i];
      continue;
    }
    const char escaped = literal[++i];
    text += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
  }
  return text;
}

/// Where a literal that began with `quote` ends; text outside of quotes ends at the next "{{" or
/// "{%".
size_t literal_end(std::string_view text, char quote, bool quoted) {
  if (!quoted) return std::min(text.find("{{"), text.find("{%"));
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return i;
    }
  }
  return text.size();
}

/// The literal system turn in the template: '<|im_start|>system\nYou are ...<|im_end|>\n'. Turns
/// that end in a variable ('<|im_start|>system\n' + message['content']) are passed over.
std::string find_chatml_system(std::string_view source) {
  constexpr std::string_view kOpen = "<|im_start|>system";
  for (size_t at = source.find(kOpen); at != std::string_view::npos; at = source.find(kOpen, at)) {
    const char quote = at > 0 ? source[at - 1] : '\0';
    const bool quoted = quote == '\'' || quote == '"';
    at += kOpen.size();
    const std::string_view literal =
        source.substr(at, literal_end(source.substr(at), quote, quoted));
    const std::string text = quoted ? unescape(literal) : std::string(literal);
    const size_t end = text.find("<|im_end|>");
    if (text.starts_with('\n') && end != std::string::npos) return text.substr(1, end - 1);
  }
  return {};
}

std::optional<std::string_view> between(std::string_view text, std::string_view open, char close) {
  const size_t begin = text.find(open);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + open.size());
  const size_t end = text.find(close);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

/// Llama 3.1 and later open every conversation with two dates. Today's is the template's own
/// fallback, not the clock's: the same messages give the same ids tomorrow.
std::string find_llama3_system(std::string_view source) {
  const auto knowledge = between(source, "\"Cutting Knowledge Date: ", '"');
  const auto today = between(source, "date_string = \"", '"');
  if (!knowledge || !today) return {};
  return unescape(
      fmt::format("Cutting Knowledge Date: {}Today Date: {}\\n\\n", *knowledge, *today));
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  const std::string& source = tokenizer.vocabulary().chat_template;
  const std::string& name = tokenizer.vocabulary().name;
  if (source.empty()) {
    throw Error(
        "{}: the model has no chat template (tokenizer.chat_template): it is a base model; "
        "--raw gives it the prompt as it is",
        name);
  }
  if (contains(source, "<|im_start|>")) {
    family_ = Family::chatml;
    default_system_ = find_chatml_system(source);
    control("<|im_start|>");
    control("<|im_end|>");
  } else if (contains(source, "<|start_header_id|>")) {
    family_ = Family::llama3;
    default_system_ = find_llama3_system(source);
    control("<|start_header_id|>");
    control("<|end_header_id|>");
    control("<|eot_id|>");
  } else if (contains(source, "<start_of_turn>")) {
    family_ = Family::gemma;
    control("<start_of_turn>");
    control("<end_of_turn>");
  } else {
    throw Error(
        "{}: tokenizer.chat_template is of an unknown family; known are ChatML, Llama 3 and "
        "Gemma. --raw gives the model the prompt as it is",
        name);
  }
  trims_ = contains(source, "| trim") || contains(source, "|trim");
}

std::vector<int32_t> ChatTemplate::encode(const std::vector<Message>& messages) const {
  if (messages.empty()) throw Error("chat: there is no message; give a prompt");
  std::vector<int32_t> ids = family_ == Family::chatml   ? encode_chatml(messages)
                             : family_ == Family::llama3 ? encode_llama3(messages)
                                                         : encode_gemma(messages);
  const Vocabulary& vocabulary = tokenizer_->vocabulary();
  const bool wants_bos = vocabulary.add_bos || contains(vocabulary.chat_template, "bos_token");
  // SmolLM2's bos is <|im_start|>: then the first turn brings it.
  if (wants_bos && vocabulary.bos >= 0 && ids.front() != vocabulary.bos) {
    ids.insert(ids.begin(), vocabulary.bos);
  }
  return ids;
}

std::vector<int32_t> ChatTemplate::encode_chatml(const std::vector<Message>& messages) const {
  const int32_t start = control("<|im_start|>");
  const int32_t end = control("<|im_end|>");
  Rendering rendering(*tokenizer_);
  if (messages.front().role != Role::system && !default_system_.empty()) {
    rendering.control(start).text("system\n").text(default_system_).control(end).text("\n");
  }
  for (const Message& message : messages) {
    rendering.control(start).text(role_name(message.role)).text("\n").text(content(message));
    rendering.control(end).text("\n");
  }
  return rendering.control(start).text("assistant\n").finish();
}

std::vector<int32_t> ChatTemplate::encode_llama3(const std::vector<Message>& messages) const {
  const int32_t start = control("<|start_header_id|>");
  const int32_t end = control("<|end_header_id|>");
  const int32_t turn_end = control("<|eot_id|>");
  Rendering rendering(*tokenizer_);
  const auto open = [&](std::string_view role) {
    rendering.control(start).text(role).control(end).text("\n\n");
  };
  const bool brings_system = messages.front().role == Role::system;
  if (!default_system_.empty() && !brings_system) {
    open("system");
    rendering.text(default_system_).control(turn_end);
  }
  for (const Message& message : messages) {
    open(role_name(message.role));
    if (brings_system && &message == &messages.front()) rendering.text(default_system_);
    rendering.text(content(message)).control(turn_end);
  }
  open("assistant");
  return rendering.finish();
}

std::vector<int32_t> ChatTemplate::encode_gemma(const std::vector<Message>& messages) const {
  const int32_t start = control("<start_of_turn>");
  const int32_t end = control("<end_of_turn>");
  const bool brings_system = messages.front().role == Role::system;
  const size_t first = brings_system ? 1 : 0;
  if (first == messages.size()) throw Error("chat: there is a system message only; give a prompt");
  Rendering rendering(*tokenizer_);
  for (size_t i = first; i < messages.size(); ++i) {
    const Role expected = (i - first) % 2 == 0 ? Role::user : Role::assistant;
    if (messages[i].role != expected) {
      throw Error(
          "chat: message {} is from the {}, but this model's template wants the {}; a system "
          "message may come first, then user and assistant alternate",
          i + 1, role_name(messages[i].role), role_name(expected));
    }
    rendering.control(start).text(expected == Role::user ? "user" : "model").text("\n");
    // The system message goes in front of the first user message, untrimmed.
    if (i == first && brings_system) rendering.text(messages.front().content).text("\n\n");
    rendering.text(content(messages[i])).control(end).text("\n");
  }
  return rendering.control(start).text("model\n").finish();
}

int32_t ChatTemplate::control(std::string_view token) const {
  const Vocabulary& vocabulary = tokenizer_->vocabulary();
  const int32_t id = tokenizer_->find(token);
  if (id < 0 || vocabulary.types[id] != TokenType::control) {
    throw Error(
        "{}: tokenizer.chat_template uses {}, which is no control token of the vocabulary; "
        "--raw gives the model the prompt as it is",
        vocabulary.name, token);
  }
  return id;
}

std::string_view ChatTemplate::content(const Message& message) const {
  return trims_ ? strip(message.content) : std::string_view(message.content);
}

}  // namespace coppice
