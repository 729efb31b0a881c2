// See workload_formats.h. Sources: FastChat (MT-bench), Spec-Bench 2024, GSM8K 2021, HumanEval
// 2021, MBPP 2021, EvalPlus 2023 (MBPP+), Self-Instruct 2022, all as their authors publish them.
#include "experiments/workload_formats.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kMtBench[] = {"writing", "roleplay",   "reasoning", "math",
                                         "coding",  "extraction", "stem",      "humanities"};

/// A text field of an object; `otherwise` when it is absent.
std::string text_field(const json& object, const char* key, std::string otherwise,
                       std::string_view place) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
    throw Error("{}: {}: is no text, or empty; give a text", place, key);
  }
  return found->get<std::string>();
}

/// A list of texts as one, a line each; "" when it is absent.
std::string lines_field(const json& object, const char* key, std::string_view place) {
  std::string text;
  const auto found = object.find(key);
  if (found == object.end()) return text;
  if (!found->is_array()) throw Error("{}: {}: is no list; give a list of texts", place, key);
  for (const json& line : *found) {
    if (!line.is_string()) throw Error("{}: {}: holds no texts; give a list of texts", place, key);
    text += line.get<std::string>() + "\n";
  }
  return text;
}

bool has(const json& object, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* k) { return object.contains(k); });
}

std::string task_id(const json& object, std::string_view set, std::string_view place) {
  const json& id = object["task_id"];
  if (id.is_number_integer()) return fmt::format("{}-{}", set, id.get<int64_t>());
  if (!id.is_string()) throw Error("{}: task_id: is no text or number; give one", place);
  const std::string text = id.get<std::string>();  // "HumanEval/12"
  return fmt::format("{}-{}", set, text.substr(text.rfind('/') + 1));
}

/// MT-bench's and Spec-Bench's question.jsonl.
Prompt from_turns(const json& object, std::string_view place) {
  const json& turns = object["turns"];
  const json id = object.value("question_id", json());
  const bool texts = turns.is_array() && !turns.empty() &&
                     std::all_of(turns.begin(), turns.end(), [](const json& turn) {
                       return turn.is_string() && !turn.get_ref<const std::string&>().empty();
                     });
  if (!texts || !id.is_number_integer()) {
    throw Error("{}: is no question; give question_id, a number, and turns, a list of texts",
                place);
  }
  Prompt prompt;
  prompt.text = turns[0].get<std::string>();
  for (size_t i = 1; i < turns.size(); ++i) {
    prompt.later_turns.push_back(turns[i].get<std::string>());
  }
  prompt.category = text_field(object, "category", "all", place);
  prompt.set_category = prompt.category;
  prompt.question = static_cast<int>(id.get<int64_t>());
  const auto* end = std::end(kMtBench);
  if (std::find(std::begin(kMtBench), end, prompt.category) != end) prompt.category = "mt-bench";
  prompt.id = fmt::format("{}-{}", prompt.category, id.get<int64_t>());
  const auto reference = object.find("reference");
  if (reference != object.end() && reference->is_array() && !reference->empty() &&
      reference->front().is_string()) {
    prompt.reference = reference->front().get<std::string>();
  }
  return prompt;
}

Prompt from_gsm8k(const json& object, std::string_view place, size_t number) {
  Prompt prompt;
  prompt.text = text_field(object, "question", "", place);
  prompt.reference = text_field(object, "answer", "", place);
  prompt.id = fmt::format("gsm8k-{}", number);
  prompt.category = "gsm8k";
  return prompt;
}

Prompt from_human_eval(const json& object, std::string_view place) {
  Prompt prompt;
  prompt.raw_text = text_field(object, "prompt", "", place);
  prompt.text = fmt::format(
      "Complete this Python function. Answer with the whole function in one code block.\n\n"
      "```python\n{}```",
      prompt.raw_text);
  prompt.reference = text_field(object, "canonical_solution", "", place);
  prompt.id = task_id(object, "humaneval", place);
  prompt.category = "humaneval";
  const std::string entry = text_field(object, "entry_point", "", place);
  prompt.code =
      CodeTask{prompt.raw_text,
               fmt::format("{}\ncheck({})\n", text_field(object, "test", "", place), entry), entry};
  return prompt;
}

/// MBPP, whole or sanitized, and MBPP+.
Prompt from_mbpp(const json& object, std::string_view place) {
  Prompt prompt;
  const char* question = object.contains("text") ? "text" : "prompt";
  const std::string task = text_field(object, question, "", place);
  const bool plus = object.contains("assertion");
  std::string test =
      plus ? text_field(object, "assertion", "", place) : lines_field(object, "test_list", place);
  prompt.text = plus ? fmt::format("{}\nAnswer with Python in one code block.", task)
                     : fmt::format(
                           "{} Your code should pass these tests:\n\n{}\nAnswer with "
                           "Python in one code block.",
                           task, test);
  if (plus) prompt.raw_text = task;
  const char* solution = plus ? "canonical_solution" : "code";
  prompt.reference = text_field(object, solution, "", place);
  prompt.id = task_id(object, "mbpp", place);
  prompt.category = "mbpp";
  const json setup = object.value("test_setup_code", json());
  prompt.code = CodeTask{lines_field(object, "test_imports", place) +
                             (setup.is_string() ? setup.get<std::string>() : "") + "\n",
                         std::move(test), plus ? text_field(object, "entry_point", "", place) : ""};
  return prompt;
}

Prompt from_instruction(const json& object, std::string_view place, size_t number) {
  Prompt prompt;
  prompt.text = text_field(object, "instruction", "", place);
  prompt.id = text_field(object, "id", fmt::format("line-{}", number), place);
  prompt.category = "instruction";
  const json& instances = object["instances"];
  if (!instances.is_array() || instances.empty() || !instances[0].is_object()) {
    throw Error("{}: instances: is no list of objects; give one with input and output", place);
  }
  const auto part = [&](const char* key) {
    const json value = instances[0].value(key, json());
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  if (!part("input").empty()) prompt.text += "\n\n" + part("input");
  prompt.reference = part("output");
  return prompt;
}

Prompt from_own(const json& object, std::string_view place, size_t number) {
  Prompt prompt;
  const auto ids = object.find("ids");
  if (ids != object.end()) {
    const bool good =
        ids->is_array() && !ids->empty() &&
        std::all_of(ids->begin(), ids->end(), [](const json& id) {
          return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= INT32_MAX;
        });
    if (!good) throw Error("{}: ids: are no token ids; give a list of whole numbers", place);
    prompt.ids = ids->get<std::vector<int32_t>>();
  } else {
    prompt.text = text_field(object, "prompt", "", place);
    if (prompt.text.empty()) throw Error("{}: prompt: is missing; give a text", place);
  }
  prompt.id = text_field(object, "id", fmt::format("line-{}", number), place);
  prompt.category = text_field(object, "category", "all", place);
  prompt.reference = text_field(object, "reference", "", place);
  return prompt;
}

/// Calls `line(text, number)` for each that is not blank.
template <class Line>
void for_each_line(std::string_view text, Line&& line) {
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.ends_with('\r')) part.remove_suffix(1);
    if (part.find_first_not_of(" \t") != std::string_view::npos) line(part, number);
  }
}

enum class Format { json_lines, json_list, ids, plain };

bool is_plain_text(std::string_view text, std::string_view name) {
  if (name.ends_with(".jsonl") || name.ends_with(".json")) return false;
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' && text[first] != '[' &&
         text.find_first_not_of("0123456789, \t\r\n") != std::string_view::npos;
}

Format format_of(std::string_view text, std::string_view name) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return Format::json_lines;
  if (text[first] == '[') return Format::json_list;
  if (is_plain_text(text, name)) return Format::plain;
  return text.find_first_not_of("0123456789, \t\r\n") == std::string_view::npos
             ? Format::ids
             : Format::json_lines;
}

Prompt parse_ids(std::string_view line, std::string_view place, size_t number) {
  Prompt prompt;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at != end) {
    if (*at < '0' || *at > '9') {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto read = std::from_chars(at, end, id);
    if (read.ec != std::errc()) throw Error("{}: holds a number that is no token id", place);
    prompt.ids.push_back(id);
    at = read.ptr;
  }
  prompt.id = fmt::format("line-{}", number);
  prompt.category = "ids";
  return prompt;
}

std::string stem_of(std::string_view name) {
  return fs::path(name).stem().string();
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error("{}: cannot be read; give a file of prompts", path.string());
  if (text.starts_with("\x1f\x8b")) {
    throw Error("{}: is compressed; unpack it with gunzip", path.filename().string());
  }
  return text;
}

}  // namespace

uint32_t request_of(std::string_view id) {
  uint32_t hash = 2166136261u;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

Prompt parse_object(const json& object, std::string_view place, size_t number) {
  if (!object.is_object()) {
    throw Error("{}: is no JSON object; write {{\"id\": ..., \"category\": ..., \"prompt\": ...}}",
                place);
  }
  Prompt prompt = has(object, {"turns"})                ? from_turns(object, place)
                  : has(object, {"question", "answer"}) ? from_gsm8k(object, place, number)
                  : has(object, {"task_id", "test", "entry_point"}) ? from_human_eval(object, place)
                  : has(object, {"task_id", "test_list"}) || has(object, {"task_id", "assertion"})
                      ? from_mbpp(object, place)
                  : has(object, {"instruction", "instances"})
                      ? from_instruction(object, place, number)
                      : from_own(object, place, number);
  prompt.request = request_of(prompt.id);
  return prompt;
}

std::vector<Prompt> parse_prompts(std::string_view text, std::string_view name) {
  std::vector<Prompt> prompts;
  std::set<std::string> seen;
  const auto add = [&](Prompt prompt, std::string_view place) {
    if (!seen.insert(prompt.id).second) {
      throw Error("{}: id: {} is taken by an earlier line; give each its own", place,
                  quote(prompt.id));
    }
    prompts.push_back(std::move(prompt));
  };
  const Format format = format_of(text, name);
  if (format == Format::json_list) {
    const json list = json::parse(text, nullptr, false);
    if (!list.is_array()) throw Error("{}: begins as a JSON list and is none; mend it", name);
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = fmt::format("{}: item {}", name, i + 1);
      add(parse_object(list[i], place, i + 1), place);
    }
  } else {
    for_each_line(text, [&](std::string_view line, size_t number) {
      const std::string place = fmt::format("{}:{}", name, number);
      if (format == Format::json_lines) {
        add(parse_object(json::parse(line, nullptr, false), place, number), place);
        return;
      }
      Prompt prompt = parse_ids(format == Format::ids ? line : "", place, number);
      if (format == Format::plain) {
        prompt.text = line;
        prompt.category = stem_of(name);
        prompt.id = fmt::format("{}-{}", prompt.category, number);
      }
      prompt.request = request_of(prompt.id);
      add(std::move(prompt), place);
    });
  }
  if (prompts.empty()) throw Error("{}: holds no prompts; write one JSON object a line", name);
  return prompts;
}

std::vector<Prompt> read_prompts(const fs::path& path) {
  return parse_prompts(read_text(path), path.filename().string());
}

std::vector<Prompt> read_text_series(const fs::path& path, int context, int count) {
  constexpr size_t kMostCharacters = 12;  // of a token, on the average of any `context` of them
  const std::string text = read_text(path), name = path.filename().string();
  if (!is_plain_text(text, name)) {
    throw Error("bench.context: {} is no plain text; give one, or leave out bench.context", name);
  }
  std::vector<Prompt> prompts;
  for (int i = 0; i < count; ++i) {
    // Ends are spread evenly; each at the white space before its place.
    size_t end = text.size() / static_cast<size_t>(count + 1) * static_cast<size_t>(i + 1);
    end = std::min(text.find_last_of(" \n", end), end);
    size_t begin = end - std::min(end, static_cast<size_t>(context) * kMostCharacters);
    while (begin < end && (text[begin] & 0xC0) == 0x80) ++begin;  // not within a character
    Prompt prompt;
    prompt.category = stem_of(name);
    prompt.id = fmt::format("{}-{}", prompt.category, i + 1);
    prompt.request = request_of(prompt.id);
    prompt.text = text.substr(begin, end - begin);
    prompt.context = context;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace coppice
