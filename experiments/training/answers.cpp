// See answers.h.
#include "experiments/training/answers.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "core/safetensors.h"
#include "experiments/config_json.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kPromptsPerFile = 64;

/// std::shuffle differs between libraries; a run's order must not.
template <class T>
void shuffle(std::vector<T>& items, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t left = items.size(); left > 1; --left) {
    std::swap(items[left - 1], items[static_cast<size_t>(random() % left)]);
  }
}

std::string settings_of(const DataOptions& options, const LoadedModel& target) {
  DataOptions told = options;
  told.batch = 0;  // the texts do not depend on these
  told.store_mb = 0;
  told.max_tokens = 0;
  auto json = config_to_json({{"data", "", dump_options(told)}});
  json["fingerprint"] = fmt::format("{:016x}", target.model->fingerprint());
  return json.dump();
}

std::vector<TrainText> read_file(const std::filesystem::path& path, const std::string& settings) {
  const SafetensorsFile file(path);
  const auto made = file.metadata().find("settings");
  if (made == file.metadata().end() || made->second != settings) {
    throw Error("{}: made with other settings or for another target; use another --out",
                path.string());
  }
  const auto count = static_cast<int64_t>(file.tensor("answer").bytes.size() / sizeof(int32_t));
  const auto all = static_cast<int64_t>(file.tensor("tokens").bytes.size() / sizeof(int32_t));
  const auto tokens = file.integers("tokens", all);
  const auto sizes = file.integers("size", count);
  const auto answers = file.integers("answer", count);
  std::vector<TrainText> texts;
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > all - at || answers[i] < 1 || answers[i] > sizes[i]) {
      throw Error("{}: text {} is out of bounds; remove the file", path.string(), i);
    }
    TrainText& text = texts.emplace_back();
    text.tokens.assign(tokens.begin() + at, tokens.begin() + at + sizes[i]);
    text.answer = static_cast<int>(answers[i]);
    at += sizes[i];
  }
  return texts;
}

void write_file(const std::filesystem::path& path, std::span<const TrainText> texts,
                const std::string& settings) {
  std::vector<int32_t> tokens, sizes, answers;
  for (const TrainText& text : texts) {
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    sizes.push_back(static_cast<int32_t>(text.tokens.size()));
    answers.push_back(text.answer);
  }
  const auto tensor = [](const char* name, const std::vector<int32_t>& values) {
    return SafeTensor{
        name, "I32", {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(values))};
  };
  write_safetensors(path,
                    std::vector<SafeTensor>{tensor("tokens", tokens), tensor("size", sizes),
                                            tensor("answer", answers)},
                    {{"settings", settings}});
}

/// The temperature of prompt `index`: greedy where it is for validation.
float temperature_of(const DataOptions& options, size_t index) {
  if (index < static_cast<size_t>(options.validation) || options.temperatures.empty()) return 0.0f;
  return static_cast<float>(options.temperatures[index % options.temperatures.size()]);
}

std::vector<TrainText> answer(const DataOptions& options, std::span<const Prompt> prompts,
                              size_t first, const LoadedModel& target, Backend& backend) {
  int longest = 0;
  for (const Prompt& prompt : prompts) {
    longest = std::max(longest, static_cast<int>(prompt.ids.size()));
  }
  const int context = std::min(longest + options.max_new_tokens + 1, target.model->context());
  // The rule draws nothing at temperature 0, so one decoder serves every temperature.
  Decoder decoder({.rule = "coupled"}, target, nullptr, backend,
                  {.sequences = options.batch, .context = context}, 1.0f);
  const auto stops = target.tokenizer->stop_ids();
  std::vector<RequestId> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (static_cast<int>(prompts[i].ids.size()) >= context) {
      ids.push_back(0);
      continue;
    }
    Request request;
    request.prompt = prompts[i].ids;
    request.sampling.temperature = temperature_of(options, first + i);
    request.sampling.seed = options.seed;
    request.sampling.request = prompts[i].request;
    request.stop.max_new_tokens = options.max_new_tokens;
    request.stop.tokens.assign(stops.begin(), stops.end());
    ids.push_back(decoder.engine().submit(std::move(request)));
  }
  while (decoder.engine().step()) {
  }
  std::vector<TrainText> texts;
  for (size_t i = 0; i < ids.size(); ++i) {
    TrainText& text = texts.emplace_back();
    text.tokens = prompts[i].ids;
    text.answer = static_cast<int>(text.tokens.size());
    if (ids[i] == 0) continue;
    const Answer answered = decoder.engine().take(ids[i]);
    text.tokens.insert(text.tokens.end(), answered.ids.begin(), answered.ids.end());
  }
  return texts;
}

}  // namespace

std::vector<Prompt> training_prompts(const DataOptions& options,
                                     const std::filesystem::path& base) {
  std::vector<Prompt> prompts;
  for (const std::string& name : options.prompts) {
    const auto path = find_data(name, base);
    if (!path) throw Error("[data] prompts: {}: cannot be found; set COPPICE_DATA", name);
    std::vector<Prompt> read = read_prompts(*path);
    std::move(read.begin(), read.end(), std::back_inserter(prompts));
  }
  shuffle(prompts, options.seed);
  if (options.max_prompts > 0 && prompts.size() > static_cast<size_t>(options.max_prompts)) {
    prompts.resize(static_cast<size_t>(options.max_prompts));
  }
  if (prompts.size() <= static_cast<size_t>(options.validation)) {
    throw Error("[data] validation is {} and there are {} prompts; give more", options.validation,
                prompts.size());
  }
  return prompts;
}

Answers answer_prompts(const DataOptions& options, std::span<const Prompt> prompts,
                       const LoadedModel& target, Backend& backend,
                       const std::filesystem::path& folder) {
  const std::string settings = settings_of(options, target);
  Answers answers;
  Progress progress(static_cast<int>(prompts.size()), "prompts answered");
  for (size_t first = 0; first < prompts.size(); first += kPromptsPerFile) {
    const size_t count = std::min(kPromptsPerFile, prompts.size() - first);
    const auto path = folder / fmt::format("answers-{:05}.safetensors", first / kPromptsPerFile);
    std::vector<TrainText> texts;
    if (std::filesystem::exists(path)) {
      texts = read_file(path, settings);
      if (texts.size() != count) {
        throw Error("{}: has {} texts; expected {}; remove the file", path.string(), texts.size(),
                    count);
      }
    } else {
      texts = answer(options, prompts.subspan(first, count), first, target, backend);
      write_file(path, texts, settings);
    }
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto size = static_cast<int>(texts[i].tokens.size());
      if (size > options.max_tokens || size < texts[i].answer + 2) continue;
      const bool apart = first + i < static_cast<size_t>(options.validation);
      (apart ? answers.validation : answers.train).push_back(std::move(texts[i]));
    }
    progress.advance(static_cast<int>(count));
  }
  if (answers.train.empty() || answers.validation.empty()) {
    throw Error("no text has at most [data] max_tokens {} tokens, two of them answered; raise it",
                options.max_tokens);
  }
  return answers;
}

std::vector<int32_t> frequent_tokens(std::span<const TrainText> texts, int vocabulary, int count) {
  if (count == 0 || count >= vocabulary) return {};
  std::vector<int64_t> seen(static_cast<size_t>(vocabulary));
  for (const TrainText& text : texts) {
    for (auto at = static_cast<size_t>(text.answer); at < text.tokens.size(); ++at) {
      ++seen[static_cast<size_t>(text.tokens[at])];
    }
  }
  std::vector<int32_t> ids(seen.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return seen[static_cast<size_t>(a)] > seen[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(count));
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace coppice
