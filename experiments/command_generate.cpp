// `coppice generate`: one answer, streamed as text, or as one JSON object for scripts.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/energy.h"
#include "experiments/run_options.h"
#include "experiments/sampling_options.h"
#include "experiments/step_trace.h"

namespace coppice {
namespace {

constexpr const char* kExamples =
    "  coppice generate --model smollm2 --prompt \"Why is the sky blue?\"\n"
    "  coppice generate --model smollm2 --method prompt_lookup --set draft_length=3 \\\n"
    "      --prompt-file notes.txt --max-new-tokens 200\n"
    "  coppice generate --model qwen-1.5b --draft-model qwen-0.5b --method draft_model \\\n"
    "      --temperature 0.8 --seed 7 --prompt \"Write quicksort in C.\"\n"
    "  git diff | coppice generate --model smollm2 --raw --json -\n";

struct GenerateOptions {
  int max_new_tokens = 128;
  int context = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int logprobs = -1;
  bool json = false;
  std::string trace;

  template <class V>
  void visit(V& v) {
    v("max_new_tokens", max_new_tokens, "ends the answer", Range{0, 1e7});
    v("context", context, "most tokens of prompt and answer; 0: what the model allows",
      Range{0, 1e7});
    v("stop", stop, "a text that ends the answer; may be repeated");
    v("ignore_eos", ignore_eos, "never draw a token that ends the answer");
    v("logprobs", logprobs, "with --json: log-probability of each token and of this many others",
      Range{-1, 1000});
    v("json", json, "print one JSON object instead of text");
    v("trace", trace, "file: a timeline of the steps, for ui.perfetto.dev");
  }
};

struct Totals {
  int64_t drafted = 0, accepted = 0;
};

nlohmann::ordered_json to_json(const Answer& answer, const AcceptanceRule& rule,
                               const std::vector<int32_t>& prompt,
                               std::optional<double> tokens_per_step,
                               std::optional<double> tokens_per_s,
                               std::optional<double> joules_per_token, bool logprobs) {
  const auto or_null = [](std::optional<double> value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json;
  json["prompt_ids"] = prompt;
  json["ids"] = answer.ids;
  json["text"] = answer.text;
  json["finish_reason"] = finish_name(answer.finish);
  json["rule"] = rule.name();
  json["lossless"] = rule.lossless();
  json["valid"] = rule.valid();
  json["steps"] = answer.steps;
  json["tokens_per_step"] = or_null(tokens_per_step);
  json["decode_tokens_per_s"] = or_null(tokens_per_s);
  json["ttft_ms"] = answer.ttft_ms;
  json["joules_per_token"] = or_null(joules_per_token);
  if (logprobs) {
    json["logprobs"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < answer.ids.size(); ++i) {
      const RawLogProbabilities& at = answer.logprobs[i];
      nlohmann::ordered_json most_likely = nlohmann::ordered_json::array();
      for (const auto& [id, value] : at.most_likely) most_likely.push_back({id, value});
      json["logprobs"].push_back(
          {{"id", answer.ids[i]}, {"logprob", at.token}, {"most_likely", most_likely}});
    }
  }
  return json;
}

}  // namespace

int generate_command(Arguments args) {
  CommandLine line("coppice generate", "Answers one prompt with a model and a decoding method.",
                   kExamples);
  line.add<MethodChoice>("Model and method");
  line.add<PromptChoice>("Prompt");
  line.add<GenerateOptions>("Answer");
  line.add<SamplingOptions>("Sampling");
  line.add<BackendChoice>("Machine");
  line.positional("input");
  if (!line.parse(args)) return 0;
  const auto choice = line.read<MethodChoice>();
  const auto options = line.read<GenerateOptions>();
  const auto sampling = line.read<SamplingOptions>().params();
  const MethodConfig method = choice.read(sampling.temperature);
  const auto prompt_choice = line.read<PromptChoice>();
  const std::string text = prompt_choice.text();
  const auto backend = line.read<BackendChoice>().make();
  const LoadedModels models = load_models(choice, *backend);
  const Tokenizer& tokenizer = *models.target.tokenizer;

  Request request;
  request.prompt = prompt_choice.tokens(text, tokenizer);
  request.sampling = sampling;
  request.stop.tokens.assign(tokenizer.stop_ids().begin(), tokenizer.stop_ids().end());
  request.stop.strings = options.stop;
  std::erase(request.stop.strings, "");
  request.stop.max_new_tokens = options.max_new_tokens;
  request.ignore_eos = options.ignore_eos;
  request.logprobs = options.logprobs;
  if (!options.json) {
    request.on_text = [](std::string_view piece) {
      fmt::print("{}", piece);
      std::fflush(stdout);
    };
  }
  const int prompt_size = static_cast<int>(request.prompt.size());
  const int most = options.context > 0 ? options.context : models.target.model->context();
  EngineLimits limits;
  limits.context = std::min(most, prompt_size + options.max_new_tokens + 1);
  if (prompt_size >= most) limits.context = most;  // submit() says that it is too long
  Decoder decoder(method.spec, models.target, models.draft.get(), *backend, limits,
                  sampling.temperature);
  Engine& engine = decoder.engine();
  Totals totals;
  std::optional<StepTrace> trace;
  if (!options.trace.empty()) trace.emplace(options.trace);
  if (trace) trace->begin(decoder.method().name);
  engine.on_step = [&](const StepRecord& record) {
    if (trace) trace->add(record, "request");
    totals.drafted += record.drafted;
    totals.accepted += record.accepted;
  };
  const std::vector<int32_t> prompt = request.prompt;
  EnergyMeter energy;
  const RequestId id = engine.submit(std::move(request));
  while (engine.step()) {
  }
  const double joules = energy.joules();
  if (trace) trace->end();
  const Answer answer = engine.take(id);
  if (answer.finish == Finish::failed) throw Failure("{}", answer.error);

  const int decoded = static_cast<int>(answer.ids.size()) - answer.prefill_emitted;
  std::optional<double> tokens_per_step, tokens_per_s;
  if (answer.steps > 0) {
    tokens_per_step = static_cast<double>(decoded) / answer.steps;
    tokens_per_s = decoded / (answer.decode_ms / 1000.0);
  }
  std::optional<double> joules_per_token;  // the prompt's part included
  if (energy.available() && !answer.ids.empty()) {
    joules_per_token = joules / static_cast<double>(answer.ids.size());
  }
  if (options.json) {
    fmt::print("{}\n", to_json(answer, decoder.rule(), prompt, tokens_per_step, tokens_per_s,
                               joules_per_token, options.logprobs >= 0)
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  const auto figure = [](std::optional<double> value, const char* format) {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string("n/a");
  };
  std::optional<double> acceptance;
  if (totals.drafted > 0) {
    acceptance = 100.0 * static_cast<double>(totals.accepted) / static_cast<double>(totals.drafted);
  }
  fmt::print("\n");
  const std::string_view mark = mark_of(decoder.rule());
  fmt::print(
      stderr,
      "{}{}: {} prompt and {} new tokens ({}), first token after {:.0f} ms, then {} tokens/s, "
      "{} tokens per step, {} of {} drafted accepted{}\n",
      decoder.method().name, mark.empty() ? "" : fmt::format(" ({})", mark), prompt.size(),
      answer.ids.size(), finish_name(answer.finish), answer.ttft_ms, figure(tokens_per_s, "{:.1f}"),
      figure(tokens_per_step, "{:.2f}"), figure(acceptance, "{:.0f} %"), totals.drafted,
      joules_per_token ? fmt::format(", {:.2f} J a token", *joules_per_token) : "");
  return 0;
}

}  // namespace coppice
