// `coppice tune layer_skip`: finds the layers a model may leave out when it drafts for itself, by
// the time a token takes on given prompts, and writes them as a method file.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <fstream>

#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/layer_search.h"
#include "experiments/run_options.h"
#include "experiments/workload.h"

namespace coppice {
namespace {

struct TuneOptions {
  std::string what;
  std::string model;
  std::string out;
  std::string prompts = "builtin";
  int prompts_per_category = 1;
  int max_new_tokens = 48;
  int evaluations = 40;
  int draft_length = 8;
  double threshold = 0.8;
  uint64_t seed = 0;
  template <class V>
  void visit(V& v) {
    v("what", what, "layer_skip: the layers that are left out", OneOf{{"layer_skip"}});
    v("model", model, kModelHelp);
    v("out", out, "method file to write; empty: print it");
    v("prompts", prompts, "JSONL file of {\"prompt\"}, not those measured later; or builtin");
    v("prompts_per_category", prompts_per_category, "first ones of each", Range{1, 1000});
    v("max_new_tokens", max_new_tokens, "tokens of an answer", Range{2, 1e6});
    v("evaluations", evaluations, "subsets tried", Range{1, 1e6});
    v("draft_length", draft_length, "most tokens proposed a step", Range{1, 64});
    v("threshold", threshold, "stop behind a token that the draft is less sure of", Range{0, 1});
    v("seed", seed, "of the search");
  }
};

struct Timing {
  double ms_per_token = 0.0;
  double tokens_per_step = 0.0;
};

/// Decodes the prompts one after the other, greedily.
Timing time_method(const MethodSpec& spec, const LoadedModel& target, Backend& backend,
                   const std::vector<Prompt>& prompts, int max_new_tokens) {
  size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.ids.size());
  const int context =
      std::min(static_cast<int>(longest) + max_new_tokens + 1, target.model->context());
  Decoder decoder(spec, target, nullptr, backend, {.context = context}, 0.0f);
  double ms = 0.0, tokens = 0.0, steps = 0.0;
  for (const Prompt& prompt : prompts) {
    Request request;
    request.prompt = prompt.ids;
    request.stop.max_new_tokens = max_new_tokens;
    const auto stops = target.tokenizer->stop_ids();
    request.stop.tokens.assign(stops.begin(), stops.end());
    const RequestId id = decoder.engine().submit(std::move(request));
    while (decoder.engine().step()) {
    }
    const Answer answer = decoder.engine().take(id);
    ms += answer.decode_ms;
    tokens += static_cast<double>(answer.ids.size()) - answer.prefill_emitted;
    steps += answer.steps;
  }
  if (tokens == 0.0) throw Failure("no prompt was answered by more than one token");
  return {ms / tokens, tokens / steps};
}

}  // namespace

int tune_command(Arguments args) {
  CommandLine line("coppice tune", "Searches settings of a method that depend on the model.",
                   "  coppice tune layer_skip --model smollm2 --out skip.toml\n"
                   "  coppice generate --model smollm2 --method skip.toml --prompt \"Hello.\"\n");
  line.add<TuneOptions>("Search");
  line.add<BackendChoice>("Machine");
  line.positional("what");
  if (!line.parse(args)) return 0;
  const auto options = line.read<TuneOptions>();
  if (options.what.empty()) throw Error("say what to tune: coppice tune layer_skip");
  const auto backend = line.read<BackendChoice>().make();
  const LoadedModels models = load_models({.model = options.model}, *backend);
  std::vector<Prompt> prompts =
      options.prompts == "builtin" ? builtin_prompts() : read_prompts(options.prompts);
  prompts = pick_prompts(std::move(prompts), {}, options.prompts_per_category);
  encode_prompts(prompts, *models.target.tokenizer, false);

  const auto time = [&](const MethodSpec& spec) {
    return time_method(spec, models.target, *backend, prompts, options.max_new_tokens);
  };
  time({});  // warms the machine up
  const Timing plain = time({});
  fmt::print("without drafts: {:.2f} ms a token, {} prompts\n", plain.ms_per_token, prompts.size());
  MethodSpec spec{.method = "layer_skip", .budget = kBudgetAll};
  const auto set_skip = [&](const std::vector<int>& skip) {
    spec.options = {{"skip", std::vector<int64_t>(skip.begin(), skip.end()), "search"},
                    {"draft_length", int64_t{options.draft_length}, "--draft-length"},
                    {"threshold", options.threshold, "--threshold"}};
  };
  int evaluated = 0;
  Timing timing;
  const TriedSkip best = search_skips(
      models.target.model->layers(), {options.evaluations, options.seed},
      [&](const std::vector<int>& skip) {
        set_skip(skip);
        timing = time(spec);
        return timing.ms_per_token;
      },
      [&](const TriedSkip& tried, bool improved) {
        fmt::print("{:>4}  {:.2f} ms a token ({:.2f}x), {:.2f} tokens per step, skip {}{}\n",
                   ++evaluated, tried.cost, plain.ms_per_token / tried.cost, timing.tokens_per_step,
                   tried.skip, improved ? "  best" : "");
      });
  set_skip(best.skip);
  std::string text = fmt::format(
      "# layer_skip for {}: {:.2f} ms a token here with these layers left out, {:.2f} ms without\n"
      "# drafts. Found by `coppice tune layer_skip` in {} evaluations, seed {}.\n"
      "[method]\nmethod = \"layer_skip\"\n",
      models.target.name, best.cost, plain.ms_per_token, evaluated, options.seed);
  for (const OptionEntry& entry : spec.options) {
    text += fmt::format("{} = {}\n", entry.key, option_text(entry.value));
  }
  if (options.out.empty()) {
    fmt::print("\n{}", text);
    return 0;
  }
  std::ofstream out(options.out, std::ios::binary);
  out << text;
  if (!out.flush()) throw Failure("--out {}: cannot be written", options.out);
  fmt::print("wrote {}\n", options.out);
  return 0;
}

}  // namespace coppice
