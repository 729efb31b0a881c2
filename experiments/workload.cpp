// See workload.h.
#include "experiments/workload.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "core/chat_template.h"
#include "core/options.h"
#include "core/quote.h"
#include "experiments/workload_formats.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWarmup[] = {
    "A friend asks how to keep bread fresh for a week without a freezer. What would you tell her?",
    "Write a short note to a colleague who starts on Monday and has never used our build system.",
    "List the planets from the largest to the smallest, with one remark about each of them.",
    "Which habits make it easier to read a long and difficult book to its end? Give reasons."};

}  // namespace

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
    prompt.request = request_of(prompt.id);
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

std::vector<Prompt> with_turns(std::vector<Prompt> prompts, int turns) {
  std::vector<Prompt> all;
  for (Prompt& prompt : prompts) {
    const size_t more = turns == 0
                            ? prompt.later_turns.size()
                            : std::min(prompt.later_turns.size(), static_cast<size_t>(turns) - 1);
    const std::string first = prompt.id, category = prompt.category;
    const std::vector<std::string> texts = std::move(prompt.later_turns);
    prompt.later_turns.clear();
    all.push_back(std::move(prompt));
    for (size_t turn = 0; turn < more; ++turn) {
      Prompt later;
      later.id = fmt::format("{}#{}", first, turn + 2);
      later.category = category;
      later.text = texts[turn];
      later.previous = all.back().id;
      later.request = request_of(later.id);
      all.push_back(std::move(later));
    }
  }
  return all;
}

namespace {

void encode_series(Prompt& prompt, const Tokenizer& tokenizer) {
  prompt.ids = tokenizer.encode(prompt.text, SpecialText::literal);
  const auto wanted = static_cast<size_t>(prompt.context);
  if (prompt.ids.size() < wanted) {
    throw Error(
        "bench.context: {} has {} tokens before its place in the text, not {}; give a "
        "longer text or a shorter context",
        quote(prompt.id), prompt.ids.size(), wanted);
  }
  prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - prompt.context);
}

std::vector<int32_t> encode_raw(const std::string& text, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.encode(text, SpecialText::parsed);
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (vocabulary.add_bos && vocabulary.bos >= 0 && (ids.empty() || ids.front() != vocabulary.bos)) {
    ids.insert(ids.begin(), vocabulary.bos);
  }
  return ids;
}

}  // namespace

void encode_prompts(std::span<Prompt> prompts, const Tokenizer& tokenizer, bool raw,
                    int max_new_tokens) {
  std::map<std::string, int, std::less<>> most;  // tokens of a conversation so far
  for (Prompt& prompt : prompts) {
    if (prompt.context > 0) {
      encode_series(prompt, tokenizer);
    } else if (!prompt.previous.empty()) {
      if (raw) throw Error("bench.turns: later turns need the chat template; leave out bench.raw");
      // Alone it has a system turn too: a bound.
      const auto alone = ChatTemplate(tokenizer).encode({{Role::user, prompt.text}});
      prompt.most_ids = most.at(prompt.previous) + max_new_tokens + static_cast<int>(alone.size());
    } else if (prompt.ids.empty()) {
      prompt.ids =
          raw ? encode_raw(prompt.raw_text.empty() ? prompt.text : prompt.raw_text, tokenizer)
              : ChatTemplate(tokenizer).encode({{Role::user, prompt.text}});
    }
    if (prompt.previous.empty()) prompt.most_ids = static_cast<int>(prompt.ids.size());
    most[prompt.id] = prompt.most_ids;
  }
}

std::vector<int32_t> encode_turn(std::span<const std::string> earlier, const Prompt& prompt,
                                 const Tokenizer& tokenizer) {
  std::vector<Message> messages;
  for (const std::string& text : earlier) {
    messages.push_back({messages.size() % 2 == 0 ? Role::user : Role::assistant, text});
  }
  messages.push_back({Role::user, prompt.text});
  return ChatTemplate(tokenizer).encode(messages);
}

}  // namespace coppice
