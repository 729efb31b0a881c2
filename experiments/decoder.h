// A loaded model, and an engine set up for one method on it: what every command that decodes uses.
//
//   auto backend = make_backend({.name = "cpu"});
//   LoadedModel target = load_model("smollm2.gguf", *backend);
//   Decoder decoder({.method = "prompt_lookup"}, target, nullptr, *backend, {.context = 1024});
//   RequestId id = decoder.engine().submit(request);
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/model.h"
#include "core/options.h"
#include "core/tokenizer.h"
#include "decoding/acceptance.h"
#include "decoding/engine.h"
#include "drafters/methods.h"

namespace coppice {

struct LoadedModel {
  std::filesystem::path path;
  std::string name;  // as the file calls itself
  std::shared_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Model> model;
  /// What a pass of it costs here; measured at the first call (about two seconds at most).
  CostCurve& costs(Backend& backend) const;

 private:
  mutable std::unique_ptr<CostCurve> costs_;
};

/// What options that name a model say of it.
inline constexpr std::string_view kModelHelp =
    "GGUF file, Hugging Face folder, or a name that experiments/models.sh fetches";

inline constexpr std::string_view kDraftHelp =
    "what method draft_model drafts with: a model, or a file of `coppice train draft`; empty: the "
    "one that comes with the project for the target";

inline constexpr std::string_view kRanksHelp =
    "devices of backend cuda that share the model (tensor parallel); draft models are on the first";
inline constexpr Range kRanksRange{1, 64};

/// `path` is one of the first two. `context` bounds the positions (0: what the model was trained
/// for). Throws Error.
LoadedModel load_model(const std::filesystem::path& path, Backend& backend, int context = 0,
                       Devices devices = Devices::all);
/// A model that drafts for the target: one like it, or what `coppice train draft` made of it, which
/// shares the target's tokens and their embedding; empty: the one of the latter kind that comes
/// with the project. Throws Error.
LoadedModel load_draft(const std::filesystem::path& path, const LoadedModel& target,
                       Backend& backend);

/// Nodes verified a step: a number, or one of these.
inline constexpr int kBudgetAuto = -1;  // as many as pay
inline constexpr int kBudgetAll = -2;   // as many as the method proposes
/// The option `budget` of commands and configs.
template <class Visitor>
void visit_budget(Visitor& v, int& budget) {
  v("budget", budget,
    "draft tokens verified a step: as many as pay on this machine now (a sampled text under "
    "rule rejection then differs from run to run), all that are proposed, or at most a number",
    Named{{0, 4096}, {{"auto", kBudgetAuto}, {"all", kBudgetAll}}});
}

struct MethodSpec {
  std::string method = "autoregressive";
  std::string rule;  // "": the method's own, or greedy at temperature 0, coupled above
  int budget = kBudgetAuto;
  OptionMap options;
  OptionMap rule_options;
};

/// Owns the drafter, the rule and the engine of one method; the models and the backend outlive it.
class Decoder {
 public:
  /// `draft` may be null when the method needs none. Throws Error for an unknown method, rule or
  /// option, and for a method that lacks its draft model.
  Decoder(const MethodSpec& spec, const LoadedModel& target, const LoadedModel* draft,
          Backend& backend, EngineLimits limits, float temperature);

  Engine& engine() { return *engine_; }
  const MethodEntry& method() const { return *method_; }
  const AcceptanceRule& rule() const { return *rule_; }
  bool budget_is_auto() const { return budget_ != nullptr; }
  /// Most nodes of a step.
  int most_nodes() const { return most_nodes_; }

 private:
  const MethodEntry* method_;
  std::unique_ptr<AcceptanceRule> rule_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<AutoBudget> budget_;  // null under a fixed one
  int most_nodes_ = 0;
  std::unique_ptr<Engine> engine_;
};

}  // namespace coppice
