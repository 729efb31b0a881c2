// See decoder.h.
#include "experiments/decoder.h"

#include "core/model_file.h"
#include "decoding/distilled_model.h"
#include "decoding/draft_head.h"

namespace coppice {

LoadedModel load_model(const std::filesystem::path& path, Backend& backend, int context,
                       Devices devices) {
  ModelFile file(path);
  const ModelSource source = file.source();
  LoadedModel loaded;
  loaded.path = path;
  loaded.name = source.config.name;
  loaded.tokenizer = std::make_unique<Tokenizer>(file.vocabulary());
  loaded.model = std::make_unique<Model>(source, backend, context, devices);
  return loaded;
}

LoadedModel load_draft(const std::filesystem::path& path, const LoadedModel& target,
                       Backend& backend) {
  if (!path.empty() && !holds_head(path)) return load_model(path, backend, 0, Devices::first);
  LoadedModel loaded;
  loaded.path = path.empty() ? shipped_head("draft", *target.model) : path;
  loaded.tokenizer = target.tokenizer;
  loaded.model = load_distilled(loaded.path, *target.model, backend);
  loaded.name = loaded.model->config().name;
  return loaded;
}

CostCurve& LoadedModel::costs(Backend& backend) const {
  if (costs_ == nullptr) costs_ = std::make_unique<CostCurve>(measure_costs(*model, backend));
  return *costs_;
}

Decoder::Decoder(const MethodSpec& spec, const LoadedModel& target, const LoadedModel* draft,
                 Backend& backend, EngineLimits limits, float temperature)
    : method_(&find_method(spec.method)) {
  if (needs_draft_model(*method_, spec.options) && draft == nullptr) {
    throw Error("method '{}' needs a draft model; give one with --draft-model FILE", spec.method);
  }
  rule_ = make_rule(!spec.rule.empty() ? spec.rule : default_rule(*method_, temperature),
                    spec.rule_options);
  MethodParts parts;
  parts.target = target.model.get();
  parts.tokenizer = target.tokenizer.get();
  parts.backend = &backend;
  if (draft != nullptr) {
    parts.draft_model = draft->model.get();
    parts.draft_tokenizer = draft->tokenizer.get();
  }
  parts.sequences = limits.sequences;
  parts.context = limits.context > 0 ? limits.context : target.model->context();
  drafter_ = method_->make(spec.options, parts);
  const int most = drafter_ ? drafter_->needs().most_nodes : 0;
  limits.budget = most_nodes_ = spec.budget < 0 ? most : std::min(spec.budget, most);
  if (most > 0 && spec.budget == kBudgetAuto) {
    budget_ = std::make_unique<AutoBudget>(target.costs(backend));
  }
  engine_ = std::make_unique<Engine>(EngineParts{.target = target.model.get(),
                                                 .backend = &backend,
                                                 .tokenizer = target.tokenizer.get(),
                                                 .rule = rule_.get(),
                                                 .drafter = drafter_.get(),
                                                 .budget = budget_.get()},
                                     limits);
}

}  // namespace coppice
