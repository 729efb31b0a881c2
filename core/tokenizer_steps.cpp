// See tokenizer_steps.h.
#include "core/tokenizer_steps.h"

#include <vector>

#include "core/pre_tokenizer.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;

/// The steps of a key: those of a Sequence, or the one step itself; none for null. `list` is the
/// Sequence's own key for them.
std::vector<JsonObject> steps_of(const JsonObject& parent, std::string_view key,
                                 std::string_view list) {
  std::vector<JsonObject> steps;
  const std::optional<JsonObject> step = parent.object(key);
  if (!step) return steps;
  if (step->text("type") != "Sequence") return {*step};
  const json* listed = step->array(list);
  for (size_t i = 0; listed != nullptr && i < listed->size(); ++i) {
    steps.push_back(step->element(list, i));
  }
  return steps;
}

[[noreturn]] void unknown_step(const JsonObject& step, std::string_view known) {
  throw Error("{}: key {} is {}; it is not supported here, {}", step.file(), step.name("type"),
              quote(step.text("type")), known);
}

/// {"Regex": ...} or {"String": ...}; empty when the pattern is of the other kind.
std::string pattern_of(const JsonObject& step, std::string_view kind) {
  const std::optional<JsonObject> pattern = step.object("pattern");
  return pattern ? pattern->text_or(kind, "") : "";
}

bool is_byte_level(const JsonObject& step, bool splits) {
  if (step.text("type") != "ByteLevel") return false;
  if (step.boolean_or("add_prefix_space", true)) step.refuse("add_prefix_space", "false");
  return step.boolean_or("use_regex", true) == splits;
}

}  // namespace

std::string read_pre_tokenizer(const JsonObject& tokenizer) {
  for (const JsonObject& step : steps_of(tokenizer, "normalizer", "normalizers")) {
    if (step.text("type") != "NFC") unknown_step(step, "a byte-level tokenizer may have NFC");
  }
  const auto steps = steps_of(tokenizer, "pre_tokenizer", "pretokenizers");
  if (steps.size() == 1 && is_byte_level(steps[0], true)) return "gpt-2";
  if (steps.size() == 2 && steps[0].text("type") == "Digits" && is_byte_level(steps[1], true) &&
      steps[0].boolean_or("individual_digits", false)) {
    return "smollm";
  }
  if (steps.size() == 2 && steps[0].text("type") == "Split" && is_byte_level(steps[1], false)) {
    if (steps[0].text("behavior") != "Isolated") steps[0].refuse("behavior", "'Isolated'");
    if (steps[0].boolean_or("invert", false)) steps[0].refuse("invert", "false");
    const std::string regex = pattern_of(steps[0], "Regex");
    const std::string_view name = PreTokenizer::name_of_regex(regex);
    if (!name.empty()) return std::string(name);
    throw Error(
        "{}: key 'pre_tokenizer' splits by the regular expression '{}', which is none of {}",
        tokenizer.file(), escape(regex), PreTokenizer::known_names());
  }
  std::vector<std::string> types;
  for (const JsonObject& step : steps) types.push_back(step.text("type"));
  throw Error(
      "{}: key 'pre_tokenizer' has the steps [{}]; expected ByteLevel, behind Digits or a Split "
      "where there is one",
      tokenizer.file(), escape(fmt::format("{}", fmt::join(types, ", "))));
}

void check_space_escapes(const JsonObject& tokenizer) {
  const auto steps = steps_of(tokenizer, "normalizer", "normalizers");
  const bool replaces = steps.size() == 1 && steps[0].text("type") == "Replace" &&
                        pattern_of(steps[0], "String") == " " &&
                        steps[0].text("content") == "\xE2\x96\x81";
  if (!replaces) {
    throw Error(
        "{}: key 'normalizer' must replace each space by U+2581 and do nothing else; tokenizers "
        "that put a space in front of a text are not supported",
        tokenizer.file());
  }
  // No space is left for this one to split at.
  for (const JsonObject& step : steps_of(tokenizer, "pre_tokenizer", "pretokenizers")) {
    if (step.text("type") != "Split" || pattern_of(step, "String") != " ") {
      unknown_step(step, "merges over characters may have a Split at spaces");
    }
  }
}

std::string read_token_in_front(const JsonObject& tokenizer) {
  std::string front;
  for (const JsonObject& step : steps_of(tokenizer, "post_processor", "processors")) {
    if (step.text("type") == "ByteLevel") continue;
    if (step.text("type") != "TemplateProcessing") {
      unknown_step(step, "ByteLevel and TemplateProcessing are");
    }
    const json* single = step.array("single");
    bool behind_text = false;
    for (size_t i = 0; single != nullptr && i < single->size(); ++i) {
      const JsonObject part = step.element("single", i);
      const std::optional<JsonObject> token = part.object("SpecialToken");
      if (!token) {
        behind_text = true;
      } else if (behind_text || !front.empty()) {
        throw Error("{}: key {} adds {} to each text; only one token in front of it is supported",
                    step.file(), step.name("single"), quote(token->text("id")));
      } else {
        front = token->text("id");
      }
    }
  }
  return front;
}

}  // namespace coppice
