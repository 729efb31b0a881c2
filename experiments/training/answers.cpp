// See answers.h.
#include "experiments/training/answers.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>

#include "core/chat_template.h"
#include "core/safetensors.h"
#include "experiments/config_json.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kPromptsPerFile = 256;

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

/// The texts of a part of the run: those in the folder, or else made and left there.
template <class Make>
std::vector<TrainText> kept(const std::filesystem::path& folder, const char* name, size_t first,
                            const std::string& settings, const Make& make) {
  const auto path = folder / fmt::format("{}-{:05}.safetensors", name, first / kPromptsPerFile);
  if (std::filesystem::exists(path)) return read_file(path, settings);
  std::vector<TrainText> texts = make();
  write_file(path, texts, settings);
  return texts;
}

/// The temperature of prompt `index`: greedy where it is for validation.
float temperature_of(const DataOptions& options, size_t index) {
  if (index < static_cast<size_t>(options.validation) || options.temperatures.empty()) return 0.0f;
  return static_cast<float>(options.temperatures[index % options.temperatures.size()]);
}

/// What the target makes of the requests, `batch` at once; empty where a prompt is too long.
std::vector<Answer> decode(std::vector<Request> requests, int batch, const LoadedModel& target,
                           Backend& backend) {
  size_t longest = 0;
  for (const Request& request : requests) {
    longest = std::max(
        longest, request.prompt.size() + static_cast<size_t>(request.stop.max_new_tokens) + 1);
  }
  const int context = std::min(static_cast<int>(longest), target.model->context());
  // The rule draws nothing at temperature 0, so one decoder serves every temperature.
  Decoder decoder({.rule = "coupled"}, target, nullptr, backend,
                  {.sequences = batch, .context = context}, 1.0f);
  const auto stops = target.tokenizer->stop_ids();
  std::vector<std::optional<RequestId>> ids;
  for (Request& request : requests) {
    request.stop.tokens.assign(stops.begin(), stops.end());
    const bool fits = static_cast<int>(request.prompt.size()) < context;
    ids.push_back(fits ? std::optional(decoder.engine().submit(std::move(request))) : std::nullopt);
  }
  while (decoder.engine().step()) {
  }
  std::vector<Answer> answers;
  for (const auto& id : ids) answers.push_back(id ? decoder.engine().take(*id) : Answer());
  return answers;
}

/// Answers to prompts of the run, `first` being the index of their first one in it.
std::vector<TrainText> answer(const DataOptions& options, std::span<const Prompt> prompts,
                              size_t first, const LoadedModel& target, Backend& backend) {
  std::vector<Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request& request = requests.emplace_back();
    request.prompt = prompts[i].ids;
    request.sampling.temperature = temperature_of(options, first + i);
    request.sampling.seed = options.seed;
    request.sampling.request = prompts[i].request;
    request.stop.max_new_tokens = options.max_new_tokens;
  }
  std::vector<TrainText> texts;
  const auto answers = decode(std::move(requests), options.batch, target, backend);
  for (size_t i = 0; i < answers.size(); ++i) {
    TrainText& text = texts.emplace_back();
    text.tokens = prompts[i].ids;
    text.answer = static_cast<int>(text.tokens.size());
    text.tokens.insert(text.tokens.end(), answers[i].ids.begin(), answers[i].ids.end());
  }
  return texts;
}

/// Where a user's message begins: what two conversations that differ in it alone have in common.
std::vector<int32_t> before_user_message(const Tokenizer& tokenizer) {
  const ChatTemplate chat(tokenizer);
  const auto one = chat.encode({{Role::user, "A"}}), other = chat.encode({{Role::user, "1"}});
  const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
  return {one.begin(), end};
}

/// An aligned model that is given its template up to where the user speaks goes on with what users
/// ask (Xu 2024, "Magpie: Alignment Data Synthesis from Scratch", section 2). Encoded.
std::vector<TrainText> write_prompts(const DataOptions& options, size_t first, size_t count,
                                     const LoadedModel& target, Backend& backend) {
  constexpr int kLongest = 128;
  Request begins;
  begins.prompt = before_user_message(*target.tokenizer);
  begins.sampling = {.temperature = 1.0f, .top_p = 0.95f, .seed = options.seed};
  begins.stop.max_new_tokens = kLongest;
  std::vector<Request> requests(count, begins);
  for (size_t i = 0; i < count; ++i)
    requests[i].sampling.request = static_cast<uint32_t>(first + i);
  std::vector<Prompt> prompts;
  for (Answer& answer : decode(std::move(requests), options.batch, target, backend)) {
    if (answer.finish != Finish::stop || answer.ids.size() < 4) continue;
    prompts.emplace_back().text = std::move(answer.text);
  }
  encode_prompts(prompts, *target.tokenizer, false);
  std::vector<TrainText> texts;
  for (Prompt& prompt : prompts) {
    const auto size = static_cast<int>(prompt.ids.size());
    texts.push_back({std::move(prompt.ids), size});
  }
  return texts;
}

}  // namespace

std::vector<Prompt> training_prompts(const DataOptions& options, const std::filesystem::path& base,
                                     const LoadedModel& target, Backend& backend,
                                     const std::filesystem::path& folder) {
  std::vector<Prompt> prompts;
  for (const std::string& name : options.prompts) {
    const auto path = find_data(name, base);
    if (!path) throw Error("[data] prompts: {}: cannot be found; set COPPICE_DATA", name);
    std::vector<Prompt> read = read_prompts(*path);
    shuffle(read, options.seed);
    if (options.per_file > 0 && read.size() > static_cast<size_t>(options.per_file)) {
      read.resize(static_cast<size_t>(options.per_file));
    }
    std::move(read.begin(), read.end(), std::back_inserter(prompts));
  }
  encode_prompts(prompts, *target.tokenizer, false);
  const std::string settings = settings_of(options, target);
  const auto written = static_cast<size_t>(options.written);
  Progress progress(options.written, "prompts written");
  for (size_t first = 0; first < written; first += kPromptsPerFile) {
    const size_t count = std::min(kPromptsPerFile, written - first);
    const auto texts = kept(folder, "prompts", first, settings,
                            [&] { return write_prompts(options, first, count, target, backend); });
    for (const TrainText& text : texts) {
      Prompt& prompt = prompts.emplace_back();
      prompt.request = static_cast<uint32_t>(prompts.size());
      prompt.ids = text.tokens;
    }
    progress.advance(static_cast<int>(count));
  }
  shuffle(prompts, options.seed);
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
    auto texts = kept(folder, "answers", first, settings, [&] {
      return answer(options, prompts.subspan(first, count), first, target, backend);
    });
    if (texts.size() != count) {
      throw Error("{}: its prompts number {} has {} answers; expected {}; use another --out",
                  folder.string(), first, texts.size(), count);
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
