// `coppice methods`: every method with its paper and options; and the list of commands itself.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "decoding/acceptance.h"
#include "drafters/methods.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/methods_markdown.h"
#include "experiments/report.h"
#include "experiments/run_folder.h"

namespace coppice {
namespace {

struct MethodsOptions {
  bool json = false;
  bool markdown = false;
  std::string readme;
  template <class V>
  void visit(V& v) {
    v("json", json, "print one JSON object a method");
    v("markdown", markdown, "print the tables of methods and rules that README shows");
    v("readme", readme, "file whose tables of methods and rules are replaced");
  }
};

void print_options(const std::vector<OptionDoc>& options) {
  for (const OptionDoc& option : options) {
    fmt::print("    {:<15} {} (default {}{}{})\n", option.key, option.help, option.default_value,
               option.range.empty() ? "" : ", ", option.range);
  }
}

constexpr Command kCommands[] = {
    {"generate", "answer one prompt", generate_command},
    {"bench", "run an experiment: methods against the baseline", bench_command},
    {"report", "write a run's report again", report_command},
    {"compare", "say what changed between two runs", compare_command},
    {"reproduce", "make a run again from its manifest, and judge it", reproduce_command},
    {"quality", "what answers are worth, how far a model is from a reference", quality_command},
    {"verify", "prove that a method is lossless", verify_command},
    {"train", "train a draft head on the target's own answers", train_command},
    {"tune", "search settings that depend on the model", tune_command},
    {"explain", "show how drafts are made and judged, step by step", explain_command},
    {"replay", "sweep a method over a run's recorded answers, without the model", replay_command},
    {"perplexity", "score how well a model predicts a text", perplexity_command},
    {"tokenize", "cut a text into tokens", tokenize_command},
    {"inspect", "show what a model file holds", inspect_command},
    {"datastore", "build the datastore that the method 'retrieval' drafts from", datastore_command},
    {"methods", "list the decoding methods and their options", methods_command},
    {"simulate", "predict what a run would have gained on another machine", simulate_command},
    {"roofline", "measure the machine, and steps against its limits", roofline_command},
    {"worker", "measure one item a line, beside other engines", worker_command},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

int methods_command(Arguments args) {
  CommandLine line("coppice methods", "Lists the decoding methods.",
                   "  coppice methods\n  coppice methods --json\n"
                   "  coppice methods --readme README.md\n");
  line.add<MethodsOptions>("Options");
  if (!line.parse(args)) return 0;
  const auto options = line.read<MethodsOptions>();
  if (!options.readme.empty()) {
    const std::string readme = read_whole_file(options.readme);
    write_whole_file(options.readme, replace_table(readme, "method-list", methods_markdown()));
    return 0;
  }
  if (options.markdown) {
    fmt::print("{}", methods_markdown());
    return 0;
  }
  if (options.json) {
    for (const MethodEntry& method : methods()) {
      nlohmann::ordered_json json = {{"name", method.name},
                                     {"paper", method.paper},
                                     {"summary", method.summary},
                                     {"needs_draft_model", method.needs_draft_model},
                                     {"lossless_rules", nlohmann::ordered_json::array()},
                                     {"options", nlohmann::ordered_json::array()}};
      for (std::string_view rule : rule_names()) {
        if (make_rule(rule)->lossless()) json["lossless_rules"].push_back(rule);
      }
      for (const OptionDoc& option : method.describe()) {
        json["options"].push_back({{"key", option.key},
                                   {"type", option.type},
                                   {"default", option.default_value},
                                   {"range", option.range},
                                   {"help", option.help}});
      }
      fmt::print("{}\n", json.dump());
    }
    return 0;
  }
  for (const MethodEntry& method : methods()) {
    fmt::print("{}: {} ({}){}\n", method.name, method.summary, method.paper,
               method.needs_draft_model
                   ? "; drafts with --draft-model, or the one shipped for the model"
                   : "");
    print_options(method.describe());
  }
  fmt::print("\nA method is lossless under a lossless acceptance rule:\n\n");
  for (const RuleEntry& rule : rules()) {
    const std::string_view mark = mark_of(*rule.make({}));
    fmt::print("{}: {} ({}); {}\n", rule.name, rule.summary, rule.paper,
               mark.empty() ? "lossless" : mark);
    print_options(docs_in_table(rule.describe(), rule.name));
  }
  return 0;
}

}  // namespace coppice
