// `coppice quality`: what a run's answers are worth beside what they cost, or how far a model's
// distributions on one backend are from a reference's.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/bench_prompts.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/model_files.h"
#include "experiments/quality_metrics.h"
#include "experiments/quality_model.h"
#include "experiments/quality_run.h"
#include "experiments/run_folder.h"
#include "experiments/run_options.h"
#include "experiments/statistics.h"
#include "experiments/sweep_folder.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

struct RunQualityOptions {
  std::string run, against;
  bool run_code = false, no_scores = false;
  double seconds = 10;
  int memory_mb = 512;
  template <class V>
  void visit(V& v) {
    v("run", run, "folder of a run or of a sweep");
    v("against", against,
      "of a run: another run, in place of its own baseline. Of a model: `reference`, that backend, "
      "or a file that --save wrote");
    v("run_code", run_code, "judge HumanEval and MBPP answers by running them, confined");
    v("seconds", seconds, "that a program may run", Range{0.1, 3600});
    v("memory_mb", memory_mb, "that a program may use", Range{64, 1e6});
    v("no_scores", no_scores, "leave out all that needs the model: nll, and the tasks' scores");
  }
};

struct ModelQualityOptions {
  std::string model, text, save;
  int tokens = 1024, chunk = 512, prompts = 2, new_tokens = 64;
  template <class V>
  void visit(V& v) {
    v("model", model, kModelHelp);
    v("text", text, "file to score");
    v("tokens", tokens, "first tokens of the text that are used; 0: all", Range{0, 1e9});
    v("chunk", chunk, "tokens scored on their own", Range{2, 1e6});
    v("save", save, "write the logits to this file, for --against");
    v("prompts", prompts, "built-in prompts decoded on both backends until they differ",
      Range{0, 48});
    v("new_tokens", new_tokens, "tokens of each", Range{1, 1e6});
  }
};

int judge_run(const RunQualityOptions& options) {
  QualityOptions asked{
      .against = options.against, .score = !options.no_scores, .run_code = options.run_code};
  asked.limits.seconds = options.seconds;
  asked.limits.bytes = static_cast<uint64_t>(options.memory_mb) << 20;
  const std::vector<AnswerQuality> rows = run_quality(options.run, asked);
  const std::string table = quality_table(rows).markdown();
  const fs::path folder = options.run;
  write_whole_file(folder / "quality.json", quality_to_json(rows).dump(2) + "\n");
  write_whole_file(folder / "quality.md", table + "\n" + quality_definitions());
  fmt::print("{}", table);
  return 0;
}

std::vector<int32_t> read_tokens(const ModelQualityOptions& options, const Tokenizer& tokenizer) {
  std::ifstream in(options.text, std::ios::binary);
  if (!in) throw Error("--text {}: cannot be read", options.text);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<int32_t> ids = tokenizer.encode(text, SpecialText::parsed);
  if (options.tokens > 0 && ids.size() > static_cast<size_t>(options.tokens)) {
    ids.resize(static_cast<size_t>(options.tokens));
  }
  return ids;
}

std::vector<int32_t> decode_greedily(const LoadedModel& loaded, Backend& backend,
                                     const std::vector<int32_t>& prompt, int new_tokens) {
  EngineLimits limits;
  limits.context =
      std::min(loaded.model->context(), static_cast<int>(prompt.size()) + new_tokens + 1);
  Decoder decoder({}, loaded, nullptr, backend, limits, 0.0f);
  Request request;
  request.prompt = prompt;
  request.sampling.temperature = 0.0f;
  request.stop.tokens.assign(loaded.tokenizer->stop_ids().begin(),
                             loaded.tokenizer->stop_ids().end());
  request.stop.max_new_tokens = new_tokens;
  const RequestId id = decoder.engine().submit(std::move(request));
  while (decoder.engine().step()) {
  }
  return decoder.engine().take(id).ids;
}

/// Tokens until greedy answers differ; those that never do count whole.
void print_divergence(const ModelQualityOptions& options, const LoadedModel& ours, Backend& backend,
                      const LoadedModel& base, Backend& base_backend) {
  std::vector<Prompt> prompts = pick_prompts(builtin_prompts(), {}, 1);
  prompts.resize(std::min(prompts.size(), static_cast<size_t>(options.prompts)));
  if (prompts.empty()) return;
  bool raw = false;
  try {
    encode_prompts(prompts, *ours.tokenizer, false);
  } catch (const Error&) {  // a base model, without a chat template
    raw = true;
    for (Prompt& prompt : prompts) prompt.ids.clear();
    encode_prompts(prompts, *ours.tokenizer, true);
  }
  std::vector<double> lengths;
  int same = 0;
  for (const Prompt& prompt : prompts) {
    const auto a = decode_greedily(ours, backend, prompt.ids, options.new_tokens);
    const auto b = decode_greedily(base, base_backend, prompt.ids, options.new_tokens);
    const auto differ = first_difference(a, b);
    same += !differ;
    lengths.push_back(differ ? *differ : static_cast<double>(a.size()));
  }
  fmt::print("greedy answers{}: {} of {} the same; they run together for {:.0f} tokens (median)\n",
             raw ? " (no chat template)" : "", same, prompts.size(), *percentile(lengths, 0.5));
}

int judge_model(const ModelQualityOptions& options, const std::string& against,
                const BackendChoice& machine) {
  if (options.text.empty()) throw Error("coppice quality: --text is missing");
  if (against.empty() && options.save.empty()) {
    throw Error("coppice quality: give --against reference, --against FILE or --save FILE");
  }
  const auto backend = machine.make();
  const fs::path path = find_model(options.model, {});
  const LoadedModel ours = load_model(path, *backend);
  const std::vector<int32_t> tokens = read_tokens(options, *ours.tokenizer);
  const PerplexityOptions scoring{.chunk = options.chunk};
  TextScorer scorer(*ours.model, *backend, tokens, scoring);
  if (!options.save.empty()) {
    save_logits(options.save, scorer, tokens, options.chunk);
    fmt::print("{}: logits of {} tokens\n", options.save, tokens.size());
    return 0;
  }
  std::unique_ptr<Backend> base_backend;
  LoadedModel base;
  std::optional<TextScorer> base_scorer;
  std::optional<SavedLogits> saved;
  if (against == "reference") {
    base_backend = make_backend({.name = "reference", .threads = machine.threads});
    base = load_model(path, *base_backend);
    base_scorer.emplace(*base.model, *base_backend, tokens, scoring);
  } else {
    saved.emplace(against, tokens, options.chunk);
  }
  const DistributionQuality quality = compare_distributions(
      scorer, tokens, [&] { return base_scorer ? base_scorer->next() : saved->next(); });
  fmt::print("{} on {}, against {}, {} tokens:\n", ours.name, backend->describe(),
             base_backend ? base_backend->describe() : against, quality.scored);
  fmt::print("perplexity {:.4f}, the reference's {:.4f}\n", std::exp(quality.nll),
             std::exp(quality.reference_nll));
  fmt::print("KL divergence {:.6f} nats (p99 {:.6f}, most {:.6f})\n", quality.kl, quality.kl_p99,
             quality.kl_most);
  fmt::print("top-1 agreement {:.2f} %\n", 100.0 * quality.top1_agreement);
  if (base_backend) print_divergence(options, ours, *backend, base, *base_backend);
  return 0;
}

}  // namespace

int quality_command(Arguments args) {
  CommandLine line("coppice quality",
                   "What the answers of a run are worth, or how far a model is from a reference.",
                   "  coppice quality results/typical\n"
                   "  coppice quality results/mbpp --run-code\n"
                   "  coppice quality results/new --against results/old\n"
                   "  coppice quality --model smollm2 --text wiki.txt --against reference\n"
                   "  coppice quality --model smollm2 --text wiki.txt --save base.logits\n");
  line.add<RunQualityOptions>("Answers of a run");
  line.add<ModelQualityOptions>("A model");
  line.add<BackendChoice>("Machine of a model");
  line.positional("run");
  if (!line.parse(args)) return 0;
  const auto run = line.read<RunQualityOptions>();
  const auto model = line.read<ModelQualityOptions>();
  if (run.run.empty() == model.model.empty()) {
    throw Error("coppice quality: name the folder of a run, or a model with --model");
  }
  if (!run.run.empty()) return judge_run(run);
  return judge_model(model, run.against, line.read<BackendChoice>());
}

}  // namespace coppice
