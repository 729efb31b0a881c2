// See workload.h.
#include "experiments/workload.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/chat_template.h"
#include "core/options.h"
#include "core/quote.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kWarmup[] = {
    "A friend asks how to keep bread fresh for a week without a freezer. What would you tell her?",
    "Write a short note to a colleague who starts on Monday and has never used our build system.",
    "List the planets from the largest to the smallest, with one remark about each of them.",
    "Which habits make it easier to read a long and difficult book to its end? Give reasons."};

constexpr std::string_view kMtBench[] = {"writing", "roleplay",   "reasoning", "math",
                                         "coding",  "extraction", "stem",      "humanities"};

/// FNV-1a, 32 bits.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

/// A text field of a line; `otherwise` when it is absent.
std::string text_field(const json& line, const char* key, std::string otherwise,
                       std::string_view place) {
  const auto found = line.find(key);
  if (found == line.end()) return otherwise;
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
    throw Error("{}: {}: is no text, or empty; give a text", place, key);
  }
  return found->get<std::string>();
}

/// MT-bench's and Spec-Bench's question.jsonl.
void read_turns(const json& line, std::string_view place, Prompt& prompt) {
  const json& turns = line["turns"];
  const json id = line.value("question_id", json());
  if (!turns.is_array() || turns.empty() || !turns[0].is_string() || !id.is_number_integer()) {
    throw Error("{}: is no question; give question_id, a number, and turns, a list of texts",
                place);
  }
  prompt.text = turns[0].get<std::string>();
  prompt.category = text_field(line, "category", "all", place);
  const auto* end = std::end(kMtBench);
  if (std::find(std::begin(kMtBench), end, prompt.category) != end) prompt.category = "mt-bench";
  prompt.id = fmt::format("{}-{}", prompt.category, id.get<int64_t>());
}

Prompt parse_prompt(std::string_view text, std::string_view place, size_t line_number) {
  const json line = json::parse(text, nullptr, false);
  if (!line.is_object()) {
    throw Error("{}: is no JSON object; write {{\"id\": ..., \"category\": ..., \"prompt\": ...}}",
                place);
  }
  Prompt prompt;
  if (line.contains("turns")) {
    read_turns(line, place, prompt);
  } else if (line.contains("question") && line.contains("answer")) {
    prompt.text = text_field(line, "question", "", place);
    prompt.id = fmt::format("gsm8k-{}", line_number);
    prompt.category = "gsm8k";
  } else {
    prompt.text = text_field(line, "prompt", "", place);
    prompt.id = text_field(line, "id", fmt::format("line-{}", line_number), place);
    prompt.category = text_field(line, "category", "all", place);
  }
  if (prompt.text.empty()) throw Error("{}: prompt: is missing; give a text", place);
  prompt.request = hash_of(prompt.id);
  return prompt;
}

}  // namespace

std::vector<Prompt> parse_prompts(std::string_view text, std::string_view name) {
  std::vector<Prompt> prompts;
  std::set<std::string> seen;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", name, number);
    prompts.push_back(parse_prompt(line, place, number));
    if (!seen.insert(prompts.back().id).second) {
      throw Error("{}: id: {} is taken by an earlier line; give each its own", place,
                  quote(prompts.back().id));
    }
  }
  if (prompts.empty()) throw Error("{}: holds no prompts; write one JSON object a line", name);
  return prompts;
}

std::vector<Prompt> read_prompts(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error("{}: cannot be read; give a JSONL file of prompts", path.string());
  return parse_prompts(text, path.filename().string());
}

std::vector<Prompt> builtin_prompts() {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& file : fs::directory_iterator(COPPICE_PROMPTS, missing)) {
    if (file.path().extension() == ".jsonl") files.push_back(file.path());
  }
  if (files.empty()) {
    throw Error("{}: the built-in prompts are gone; name a JSONL file with bench.prompts",
                COPPICE_PROMPTS);
  }
  std::sort(files.begin(), files.end());
  std::vector<Prompt> prompts;
  for (const fs::path& file : files) {
    std::vector<Prompt> more = read_prompts(file);
    std::move(more.begin(), more.end(), std::back_inserter(prompts));
  }
  return prompts;
}

std::vector<Prompt> warmup_prompts(int count) {
  std::vector<Prompt> prompts;
  for (int i = 0; i < count; ++i) {
    Prompt prompt;
    prompt.id = fmt::format("warm-up-{}", i + 1);
    prompt.category = "warm-up";
    prompt.text = kWarmup[static_cast<size_t>(i) % std::size(kWarmup)];
    prompt.request = hash_of(prompt.id);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::vector<Prompt> pick_prompts(std::vector<Prompt> prompts,
                                 std::span<const std::string> categories, int per_category) {
  std::map<std::string, int, std::less<>> taken;
  for (const Prompt& prompt : prompts) taken[prompt.category] = 0;
  for (const std::string& category : categories) {
    if (taken.contains(category)) continue;
    std::vector<std::string_view> known;
    for (const auto& entry : taken) known.push_back(entry.first);
    throw Error("bench.categories: {} has no prompts{}", quote(category),
                suggest_word(category, known));
  }
  std::vector<Prompt> picked;
  for (Prompt& prompt : prompts) {
    const bool wanted = categories.empty() || std::find(categories.begin(), categories.end(),
                                                        prompt.category) != categories.end();
    if (!wanted) continue;
    int& count = taken.find(prompt.category)->second;
    if (per_category > 0 && count == per_category) continue;
    ++count;
    picked.push_back(std::move(prompt));
  }
  return picked;
}

void encode_prompts(std::span<Prompt> prompts, const Tokenizer& tokenizer, bool raw) {
  for (Prompt& prompt : prompts) {
    if (raw) {
      prompt.ids = tokenizer.encode(prompt.text, SpecialText::parsed);
      const Vocabulary& vocabulary = tokenizer.vocabulary();
      if (vocabulary.add_bos && vocabulary.bos >= 0 &&
          (prompt.ids.empty() || prompt.ids.front() != vocabulary.bos)) {
        prompt.ids.insert(prompt.ids.begin(), vocabulary.bos);
      }
    } else {
      prompt.ids = ChatTemplate(tokenizer).encode({{Role::user, prompt.text}});
    }
  }
}

}  // namespace coppice
