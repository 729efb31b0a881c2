// `coppice explain`: every step of an answer as a drawn tree, from the engine's own records.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/quote.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/explain.h"
#include "experiments/run_options.h"
#include "experiments/sampling_options.h"

namespace coppice {
namespace {

struct ExplainOptions {
  int steps = 8;
  bool json = false;
  template <class V>
  void visit(V& v) {
    v("steps", steps, "that are shown, the prompt's included", Range{1, 1e6});
    v("json", json, "print one JSON object a step");
  }
};

}  // namespace

int explain_command(Arguments args) {
  CommandLine line(
      "coppice explain", "Shows step by step how a method drafts and how its drafts are judged.",
      "  coppice explain --model smollm2 --method prompt_lookup --budget all \\\n"
      "      --prompt \"Repeat three times: a rose is a rose.\"\n"
      "  coppice explain --model smollm2 --method lookahead --steps 12 --prompt Hello\n"
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
  constexpr int kMostEmitted = 64;  // of a step; the cache is no larger than the steps can fill
  EngineLimits limits;
  limits.context =
      std::min<int>(models.target.model->context(),
                    static_cast<int>(request.prompt.size()) + kMostEmitted * (options.steps + 1));
  request.stop.max_new_tokens = limits.context;
  Decoder decoder(method.spec, models.target, models.draft.get(), *backend, limits,
                  sampling.temperature);
  if (!options.json) {
    const std::string_view mark = mark_of(decoder.rule());
    fmt::print(
        "{} under the rule {}{}; p is the target's probability{}, q the drafter's; a draft "
        "without q was proposed without chance\n\n",
        decoder.method().name, decoder.rule().name(),
        mark.empty() ? "" : fmt::format(" ({})", mark),
        sampling.temperature > 0.0f ? " after every warp" : "");
  }
  Engine& engine = decoder.engine();
  ExplainedStep told;
  engine.on_judged = [&](const JudgedStep& step) { told = explain_step(step, tokenizer); };
  int shown = 0;
  engine.on_step = [&](const StepRecord& record) {
    if (record.emitted == 0) return;  // a part of a long prompt: nothing was judged
    ++shown;
    fmt::print("{}", options.json ? explained_json(told, record).dump() + "\n"
                                  : explained_text(told, record));
  };
  const RequestId id = engine.submit(std::move(request));
  while (shown < options.steps && engine.step()) {
  }
  const Answer& answer = engine.answer(id);
  if (answer.finish == Finish::failed) throw Failure("{}", answer.error);
  if (!options.json) fmt::print("{}\n", escape(answer.text));
  return 0;
}

}  // namespace coppice
