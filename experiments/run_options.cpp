// See run_options.h.
#include "experiments/run_options.h"

#include <fstream>
#include <iostream>
#include <iterator>

#include "core/chat_template.h"
#include "experiments/model_files.h"
#include "experiments/toml_source.h"

namespace coppice {
namespace {

std::string read_all(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::unique_ptr<Backend> BackendChoice::make() const {
  return make_backend({.name = backend, .threads = threads, .target = target, .ranks = ranks});
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
  if (!rule.empty() && rule != config.spec.rule) {
    config.spec.rule = rule;
    config.spec.rule_options.clear();
  }
  check_keys(config.spec.options, valid_options(entry, config.spec.options, config.spec.rule),
             config.spec.method);
  for (OptionEntry& given : take_table(config.spec.options, config.spec.rule)) {
    std::erase_if(config.spec.rule_options,
                  [&](const OptionEntry& old) { return old.key == given.key; });
    config.spec.rule_options.push_back(std::move(given));
  }
  make_rule(config.spec.rule, config.spec.rule_options);
  if (budget != kBudgetAuto) config.spec.budget = budget;
  return config;
}

std::string PromptChoice::text() const {
  const int given = static_cast<int>(!prompt.empty()) + static_cast<int>(!prompt_file.empty()) +
                    static_cast<int>(!input.empty()) + static_cast<int>(!prompt_ids.empty());
  if (given != 1) {
    throw Error("give the prompt once: --prompt TEXT, --prompt-file FILE, --prompt-ids LIST or -");
  }
  if (!prompt_ids.empty()) return "";
  std::string text = prompt;
  if (!input.empty()) {
    text = read_all(std::cin);
  } else if (!prompt_file.empty()) {
    std::ifstream in(prompt_file, std::ios::binary);
    if (!in) throw Error("--prompt-file {}: cannot be read", prompt_file);
    text = read_all(in);
  }
  if (text.empty()) throw Error("the prompt is empty; give at least one character");
  return text;
}

std::vector<int32_t> PromptChoice::tokens(const std::string& text,
                                          const Tokenizer& tokenizer) const {
  if (!prompt_ids.empty()) return {prompt_ids.begin(), prompt_ids.end()};
  if (raw) return tokenizer.encode_prompt(text);
  std::vector<Message> messages;
  if (!system.empty()) messages.push_back({Role::system, system});
  messages.push_back({Role::user, text});
  return ChatTemplate(tokenizer).encode(messages);
}

LoadedModels load_models(const MethodChoice& choice, Backend& backend) {
  if (choice.model.empty()) {
    throw Error(
        "--model is missing; give a GGUF file, a Hugging Face folder, or smollm2 after `bash "
        "experiments/models.sh smollm2`");
  }
  const MethodSpec method = choice.read(0.0f).spec;
  const bool drafts = needs_draft_model(find_method(method.method), method.options);
  if (!drafts && !choice.draft_model.empty()) {
    throw Error("--draft-model: method {} drafts without one; leave it out", method.method);
  }
  LoadedModels loaded;
  loaded.target = load_model(find_model(choice.model, {}), backend);
  if (drafts) {
    const std::string& draft = choice.draft_model;
    loaded.draft = std::make_unique<LoadedModel>(
        load_draft(draft.empty() ? "" : find_model(draft, {}), loaded.target, backend));
  }
  return loaded;
}

}  // namespace coppice
