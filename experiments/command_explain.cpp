// `coppice explain`: every step of an answer as a drawn tree, from the engine's own records, as
// text or as a page that plays them.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/quote.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/explain_page.h"
#include "experiments/manifest.h"
#include "experiments/run_folder.h"
#include "experiments/run_options.h"
#include "experiments/sampling_options.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostEmitted = 64;  // of a step; the cache is no larger than the steps can fill
constexpr int kShown = 8, kPlayed = 40;

struct ExplainOptions {
  int steps = 0;
  bool json = false;
  std::string html;
  template <class V>
  void visit(V& v) {
    v("steps", steps, "that are shown, the prompt's included; 0: 8, on a page 40", Range{0, 1e6});
    v("json", json, "print one JSON object a step");
    v("html", html, "file: a page that plays the steps, and races the baseline");
  }
  int count() const { return steps > 0 ? steps : html.empty() ? kShown : kPlayed; }
};

double milliseconds(const StepRecord& record) {
  return record.draft_ms + record.target_ms + record.judge_ms + record.other_ms;
}

/// Decodes and tells every step that emits; `on_told` says whether to go on. The time that telling
/// takes is no part of the step's.
template <class OnTold>
void tell_steps(Engine& engine, Request request, const Tokenizer& tokenizer, OnTold&& on_told) {
  ExplainedStep told;
  Clock::duration telling{};
  engine.on_judged = [&](const JudgedStep& step) {
    const Clock::time_point start = Clock::now();
    told = explain_step(step, tokenizer);
    telling = Clock::now() - start;
  };
  bool go_on = true;
  engine.on_step = [&](const StepRecord& record) {
    if (record.emitted == 0) return;  // a part of a long prompt: nothing was judged
    StepRecord own = record;
    own.judge_ms -= std::chrono::duration<double, std::milli>(telling).count();
    go_on = on_told(told, own);
  };
  const RequestId id = engine.submit(std::move(request));
  while (go_on && engine.step()) {
  }
  const Answer& answer = engine.answer(id);
  if (answer.finish == Finish::failed) throw Failure("{}", answer.error);
}

/// The baseline, on the same prompt: a step whenever it is asked for one.
class Pacer {
 public:
  Pacer(const LoadedModel& target, Backend& backend, const EngineLimits& limits, Request request)
      : decoder_({}, target, nullptr, backend, limits, request.sampling.temperature) {
    request.ignore_eos = true;  // another text may be longer
    request.on_text = nullptr;
    decoder_.engine().on_step = [this](const StepRecord& record) {
      if (record.emitted == 0) return;
      if (tokens_ > 0) step_ms_.push_back(milliseconds(record));
      tokens_ += record.emitted;
    };
    decoder_.engine().submit(std::move(request));
  }
  void run_to(int tokens) {
    while (tokens_ < tokens && decoder_.engine().step()) {
    }
  }
  const std::vector<double>& step_ms() const { return step_ms_; }  // behind the first token

 private:
  Decoder decoder_;
  int tokens_ = 0;
  std::vector<double> step_ms_;
};

std::string about(const Decoder& decoder) {
  const RuleEntry& rule = find_rule(decoder.rule().name());
  const std::string_view mark = mark_of(decoder.rule());
  const auto by = [](std::string_view paper) {
    return paper == "-" ? std::string() : fmt::format(" ({})", paper);
  };
  return fmt::format("Drafts: {}{}. The rule {}{} keeps: {}{}.", decoder.method().summary,
                     by(decoder.method().paper), rule.name,
                     mark.empty() ? "" : fmt::format(", {},", mark), rule.summary, by(rule.paper));
}

/// The two are timed in turns, a step of the one and as many of the other as level them.
ExplainedRun race(Decoder& decoder, const LoadedModel& target, Backend& backend,
                  const EngineLimits& limits, const Request& request, const std::string& prompt,
                  int steps) {
  const Tokenizer& tokenizer = *target.tokenizer;
  ExplainedRun run;
  run.method = decoder.method().name;
  run.rule = decoder.rule().name();
  run.about = about(decoder);
  run.setting = fmt::format("{} on {}, {}; temperature {}.", target.name,
                            describe_machine().at("cpu").get<std::string>(), backend.describe(),
                            shortest_double(request.sampling.temperature));
  run.prompt = prompt;
  { Pacer(target, backend, limits, request).run_to(kMostEmitted); }  // warms up
  Pacer baseline(target, backend, limits, request);
  TextStream text(tokenizer);
  int tokens = 0;
  tell_steps(decoder.engine(), request, tokenizer,
             [&](const ExplainedStep& step, const StepRecord& record) {
               ToldStep told{step, record, {}};
               for (int i = 0; i < record.emitted; ++i) {
                 const bool drafted = i < static_cast<int>(step.path.size());
                 const int32_t token =
                     drafted
                         ? step.nodes[static_cast<size_t>(step.path[static_cast<size_t>(i)])].token
                         : step.token;
                 told.pieces.push_back(text.push(token));
               }
               run.steps.push_back(std::move(told));
               tokens += record.emitted;
               baseline.run_to(tokens);
               return static_cast<int>(run.steps.size()) < steps;
             });
  run.baseline_ms = baseline.step_ms();
  return run;
}

void print_steps(Decoder& decoder, const Request& request, const Tokenizer& tokenizer, int steps,
                 bool json) {
  if (!json) {
    const std::string_view mark = mark_of(decoder.rule());
    fmt::print(
        "{} under the rule {}{}; p is the target's probability{}, q the drafter's; a draft "
        "without q was proposed without chance\n\n",
        decoder.method().name, decoder.rule().name(),
        mark.empty() ? "" : fmt::format(" ({})", mark),
        request.sampling.temperature > 0.0f ? " after every warp" : "");
  }
  int shown = 0;
  std::string text;
  Request listened = request;
  listened.on_text = [&](std::string_view piece) { text += piece; };
  tell_steps(decoder.engine(), std::move(listened), tokenizer,
             [&](const ExplainedStep& step, const StepRecord& record) {
               fmt::print("{}", json ? explained_json(step, record).dump() + "\n"
                                     : explained_text(step, record));
               return ++shown < steps;
             });
  if (!json) fmt::print("{}\n", escape(text));
}

}  // namespace

int explain_command(Arguments args) {
  CommandLine line(
      "coppice explain", "Shows step by step how a method drafts and how its drafts are judged.",
      "  coppice explain --model smollm2 --method prompt_lookup --budget all \\\n"
      "      --prompt \"Repeat three times: a rose is a rose.\"\n"
      "  coppice explain --model smollm2 --method lookahead --steps 12 --prompt Hello\n"
      "  coppice explain --model smollm2 --method suffix --budget all --html suffix.html \\\n"
      "      --prompt \"Repeat three times: a rose is a rose.\"\n"
      "  coppice explain --model qwen-1.5b --draft-model qwen-0.5b \\\n"
      "      --method draft_model --rule rejection --temperature 1 --prompt Hello\n");
  line.add<MethodChoice>("Model and method");
  line.add<PromptChoice>("Prompt");
  line.add<ExplainOptions>("Explanation");
  line.add<SamplingOptions>("Sampling");
  line.add<BackendChoice>("Machine");
  line.positional("input");
  if (!line.parse(args)) return 0;
  const auto choice = line.read<MethodChoice>();
  const auto options = line.read<ExplainOptions>();
  if (options.json && !options.html.empty()) {
    throw Error("coppice explain: --json and --html exclude each other; give one");
  }
  const auto sampling = line.read<SamplingOptions>().params();
  const MethodConfig method = choice.read(sampling.temperature);
  const auto prompt = line.read<PromptChoice>();
  const std::string text = prompt.text();
  const auto backend = line.read<BackendChoice>().make();
  const LoadedModels models = load_models(choice, *backend);
  const Tokenizer& tokenizer = *models.target.tokenizer;

  Request request;
  request.prompt = prompt.tokens(text, tokenizer);
  request.sampling = sampling;
  request.stop.tokens.assign(tokenizer.stop_ids().begin(), tokenizer.stop_ids().end());
  EngineLimits limits;
  limits.context =
      std::min<int>(models.target.model->context(),
                    static_cast<int>(request.prompt.size()) + kMostEmitted * (options.count() + 1));
  request.stop.max_new_tokens = limits.context;
  Decoder decoder(method.spec, models.target, models.draft.get(), *backend, limits,
                  sampling.temperature);
  if (options.html.empty()) {
    print_steps(decoder, request, tokenizer, options.count(), options.json);
    return 0;
  }
  const std::string shown = text.empty() ? tokenizer.decode(request.prompt) : text;
  write_whole_file(options.html, explain_page(race(decoder, models.target, *backend, limits,
                                                   request, shown, options.count())));
  fmt::print("{}: written; open it in a browser\n", options.html);
  return 0;
}

}  // namespace coppice
