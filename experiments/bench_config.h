// An experiment: which model, which prompts, how tokens are drawn, and the methods to compare with
// the baseline. The baseline itself is always measured and needs no entry.
//
//   BenchConfig config = read_bench_config("configs/quickstart.toml", {{"bench.seed=7"}});
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "experiments/decoder.h"
#include "experiments/sampling_options.h"
#include "experiments/toml_source.h"

namespace coppice {

struct ModelOptions {
  std::string path = "smollm2";
  std::string draft;

  template <class V>
  void visit(V& v) {
    v("path", path, kModelHelp);
    v("draft", draft, kDraftHelp);
  }
};

struct BenchOptions {
  std::string name;
  std::vector<std::string> prompts = {"builtin"};
  std::vector<std::string> categories;
  std::vector<std::string> methods;
  int prompts_per_category = 3;
  int prompts_per_file = 0;
  int context = 0;
  int turns = 1;
  int max_new_tokens = 64;
  int batch = 1;
  uint64_t seed = 0;
  int warmup = 1;
  std::string memory = "fresh";
  std::string backend = "cpu";
  std::string target;
  int threads = 0;
  int ranks = 1;
  bool ignore_eos = false;
  bool raw = false;
  bool record_trees = false;

  template <class V>
  void visit(V& v) {
    v("name", name, "of the experiment; empty: the config file's name");
    v("prompts", prompts,
      "files: JSONL of {\"id\", \"category\", \"prompt\"}, plain text, token ids, or as MT-bench, "
      "Spec-Bench, GSM8K, HumanEval and MBPP are published; builtin: the project's own");
    v("categories", categories, "use these alone; empty: all");
    v("methods", methods, "labels of the methods to measure; empty: all");
    v("prompts_per_category", prompts_per_category, "first ones of each; 0: all", Range{0, 1e6});
    v("prompts_per_file", prompts_per_file, "first ones of each file; 0: all", Range{0, 1e6});
    v("context", context,
      "above 0: prompts are this many tokens out of plain texts, to go on from without the chat "
      "template, prompts_per_category of each",
      Range{0, 1e6});
    v("turns", turns,
      "of a conversation, each after the baseline's answers before it; 0: all there are",
      Range{0, 100});
    v("max_new_tokens", max_new_tokens, "tokens of an answer", Range{1, 1e6});
    v("batch", batch, "prompts decoded together", Range{1, 256});
    v("seed", seed, "of the order of prompts and arms");
    v("warmup", warmup, "other prompts decoded first and thrown away", Range{0, 16});
    v("memory", memory, "what a drafter remembers between prompts: nothing, or all of them",
      OneOf{{"fresh", "carried"}});
    v("backend", backend, "that runs the models");
    v("target", target, "instruction set of the backend; empty: the best of this machine");
    v("threads", threads, "0: one per core", Range{0, 1024});
    v("ranks", ranks, kRanksHelp, kRanksRange);
    v("ignore_eos", ignore_eos, "never draw a token that ends the answer");
    v("raw", raw, "take prompts as they are, without the chat template");
    v("record_trees", record_trees, "keep every step's tree in steps.jsonl");
  }
  BackendOptions machine() const {
    return {.name = backend, .threads = threads, .target = target, .ranks = ranks};
  }
};

/// What every [[method]] table may hold beside its method's own options.
struct MethodOptions {
  std::string name;
  std::string method;
  std::string rule;
  int budget = kBudgetAuto;

  template <class V>
  void visit(V& v) {
    v("name", name, "label in tables; empty: the method's name");
    v("method", method, "a name that `coppice methods` lists");
    v("rule", rule, "acceptance rule; empty: greedy at temperature 0, coupled above");
    visit_budget(v, budget);
  }
};

struct MethodConfig {
  std::string name;  // label: unique in a config
  MethodSpec spec;   // rule filled in; options as given
};

struct BenchConfig {
  ModelOptions model;
  BenchOptions bench;
  SamplingOptions sampling;
  std::vector<MethodConfig> methods;
  std::filesystem::path folder;  // relative paths of the config start here
};

/// Label of the baseline's rows; no method may take it.
inline constexpr std::string_view kBaselineName = "baseline";

/// Checks everything that can be known without loading a model. `name` is the experiment's where
/// the config gives none. Throws Error "place: key: what; remedy".
BenchConfig make_bench_config(ConfigTables tables, std::span<const std::string> overrides,
                              std::string_view name, const std::filesystem::path& folder);
/// The same with overrides that are read already.
BenchConfig resolve_bench_config(ConfigTables tables, std::span<const Override> overrides,
                                 std::string_view name, const std::filesystem::path& folder);
/// The tables of a TOML config, or of the manifest.json of an earlier run.
ConfigTables read_config_tables(const std::filesystem::path& path);
/// Reads a TOML config, or the manifest.json of an earlier run, which repeats that run.
BenchConfig read_bench_config(const std::filesystem::path& path,
                              std::span<const std::string> overrides);
/// The whole config, every default written out: make_bench_config() reads it back the same.
ConfigTables dump_bench_config(const BenchConfig& config);

/// Every key of a method's own and, as `rule.key`, of its rule.
std::vector<OptionDoc> valid_options(const MethodEntry& method, const OptionMap& given,
                                     std::string_view rule);

/// One method for a command line: a method's name, or a TOML file with a [method] table.
MethodConfig read_method(std::string_view name_or_file, float temperature);

}  // namespace coppice
