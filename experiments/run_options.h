// Option groups that several commands share: which models, on which backend, with which method.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/options.h"
#include "experiments/bench_config.h"
#include "experiments/decoder.h"

namespace coppice {

struct BackendChoice {
  std::string backend = "cpu";
  std::string target;
  int threads = 0;
  int ranks = 1;

  template <class V>
  void visit(V& v) {
    v("backend", backend, "cpu, cuda (NVIDIA GPUs), or reference (float32, slow, the oracle)");
    v("target", target, "instruction set of the backend; empty: the best of this machine");
    v("threads", threads, "0: one per core", Range{0, 1024});
    v("ranks", ranks, kRanksHelp, kRanksRange);
  }
  std::unique_ptr<Backend> make() const;
};

struct MethodChoice {
  std::string model;
  std::string draft_model;
  std::string method = "autoregressive";
  std::vector<std::string> set;
  std::string rule;
  int budget = kBudgetAuto;

  template <class V>
  void visit(V& v) {
    v("model", model, kModelHelp);
    v("draft_model", draft_model, kDraftHelp);
    v("method", method, "name that `coppice methods` lists, or a TOML file with a [method] table");
    v("set", set, "an option of the method, KEY=VALUE, or of its rule, RULE.KEY=VALUE; repeatable");
    v("rule", rule, "acceptance rule; empty: greedy at temperature 0, coupled above");
    visit_budget(v, budget);
  }
  /// Checks the method, its options and its rule before any model is loaded.
  MethodConfig read(float temperature) const;
};

/// The prompt of a single request.
struct PromptChoice {
  std::string prompt, prompt_file, input;
  std::vector<int> prompt_ids;
  std::string system;
  bool raw = false;

  template <class V>
  void visit(V& v) {
    v("prompt", prompt, "the user's message, or with --raw the text to go on from");
    v("prompt_file", prompt_file, "the same, from a file");
    v("input", input, "- takes it from standard input", OneOf{{"-"}});
    v("prompt_ids", prompt_ids, "token ids 1,2,3 instead of text");
    v("system", system, "the system message; empty: the one of the model's template");
    v("raw", raw, "no chat template; special tokens in the text are parsed");
  }
  /// The text, read from where it stands; empty when ids are given. Throws Error when it was given
  /// not at all, more than once, or empty.
  std::string text() const;
  std::vector<int32_t> tokens(const std::string& text, const Tokenizer& tokenizer) const;
};

/// The target and, where one is given, the draft model.
struct LoadedModels {
  LoadedModel target;
  std::unique_ptr<LoadedModel> draft;
};
/// Throws Error naming --model when it is missing.
LoadedModels load_models(const MethodChoice& choice, Backend& backend);

}  // namespace coppice
