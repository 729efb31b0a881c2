// See run_options.h.
#include "experiments/run_options.h"

#include "experiments/model_files.h"
#include "experiments/toml_source.h"

namespace coppice {

std::unique_ptr<Backend> BackendChoice::make() const {
  return make_backend({.name = backend, .threads = threads, .target = target});
}

MethodConfig MethodChoice::read(float temperature) const {
  MethodConfig config = read_method(method, temperature);
  for (const std::string& assignment : set) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error("--set {}: write it as KEY=VALUE, such as draft_length=3", assignment);
    }
    const std::string key = assignment.substr(0, equals);
    std::erase_if(config.spec.options, [&](const OptionEntry& entry) { return entry.key == key; });
    config.spec.options.push_back({key, parse_value(assignment.substr(equals + 1)), "--set"});
  }
  const MethodEntry& entry = find_method(config.spec.method);
  check_keys(config.spec.options, entry.describe(), config.spec.method);
  if (!rule.empty()) config.spec.rule = rule;
  if (!config.spec.rule.empty()) make_rule(config.spec.rule);
  if (budget != kBudgetAuto) config.spec.budget = budget;
  if (entry.needs_draft_model && draft_model.empty()) {
    throw Error("method {} needs a draft model; give one with --draft-model", config.spec.method);
  }
  return config;
}

LoadedModels load_models(const MethodChoice& choice, Backend& backend) {
  if (choice.model.empty()) {
    throw Error(
        "--model is missing; give a GGUF file, or smollm2 after `bash "
        "experiments/models.sh smollm2`");
  }
  LoadedModels loaded;
  loaded.target = load_model(find_model(choice.model, {}), backend);
  if (!choice.draft_model.empty()) {
    loaded.draft =
        std::make_unique<LoadedModel>(load_model(find_model(choice.draft_model, {}), backend));
  }
  return loaded;
}

}  // namespace coppice
