// `coppice replay`: sweeps a method's options over the recorded answers of a run, without its
// model.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/quote.h"
#include "experiments/bench_config.h"
#include "experiments/command_line.h"
#include "experiments/commands.h"
#include "experiments/replay.h"
#include "experiments/table.h"

namespace coppice {
namespace {

struct ReplayOptions {
  std::string run;
  std::string drafter = "prompt_lookup";
  std::vector<std::string> set;
  std::string budget = "all";
  std::string costs;
  bool json = false;

  template <class V>
  void visit(V& v) {
    v("run", run, "folder that coppice bench wrote");
    v("drafter", drafter, "method that sees token ids alone, or a TOML file with a [method] table");
    v("set", set, "an option and its values, KEY=1..10 or KEY=2,4,8; repeated: every combination");
    v("budget", budget, "most draft tokens a step, swept likewise; all: as many as it proposes");
    v("costs", costs, "cost of a pass by its rows, such as 1:1,2:1.05,8:1.8; empty: the run's own");
    v("json", json, "print one JSON object a setting");
  }
};

/// An option with the values it is swept over.
struct Sweep {
  std::string key;
  std::vector<OptionValue> values;
};

std::vector<OptionValue> values_of(const std::string& key, const std::string& text) {
  const OptionValue whole = parse_value(text);
  const size_t dots = text.find("..");
  if (dots != std::string::npos) {
    const OptionValue low = parse_value(text.substr(0, dots));
    const OptionValue high = parse_value(text.substr(dots + 2));
    const auto* first = std::get_if<int64_t>(&low);
    const auto* last = std::get_if<int64_t>(&high);
    if (first != nullptr && last != nullptr) {
      if (*last < *first || *last - *first > 100'000) {
        throw Error("--set {}: {} is no range; write the smaller end first", key, quote(text));
      }
      std::vector<OptionValue> values;
      for (int64_t value = *first; value <= *last; ++value) values.emplace_back(value);
      return values;
    }
  }
  const bool is_list =
      text.find(',') != std::string::npos && text.front() != '[' && text.front() != '"';
  if (!is_list) return {whole};
  std::vector<OptionValue> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(parse_value(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return values;
}

std::vector<Sweep> sweeps_of(const ReplayOptions& options) {
  std::vector<Sweep> sweeps;
  for (const std::string& assignment : options.set) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error("--set {}: write it as KEY=VALUES, such as draft_length=1..10", assignment);
    }
    std::string key = assignment.substr(0, equals);
    sweeps.push_back({key, values_of(key, assignment.substr(equals + 1))});
  }
  sweeps.push_back({"budget", values_of("budget", options.budget)});
  for (const OptionValue& value : sweeps.back().values) {
    const auto* number = std::get_if<int64_t>(&value);
    const auto* word = std::get_if<std::string>(&value);
    if ((number == nullptr || *number < 0) && (word == nullptr || *word != "all")) {
      throw Error("--budget: {} is no budget; give numbers, or all", quote(options.budget));
    }
  }
  return sweeps;
}

struct Setting {
  std::string name;  // "draft_length=3 budget=all"
  OptionMap options;
  int budget = -1;
};

/// The index-th combination, the last key turning fastest.
Setting setting_at(const std::vector<Sweep>& sweeps, const OptionMap& base, size_t index) {
  Setting setting{"", base, -1};
  std::vector<std::string> parts;
  for (auto sweep = sweeps.rbegin(); sweep != sweeps.rend(); ++sweep) {
    const OptionValue& value = sweep->values[index % sweep->values.size()];
    index /= sweep->values.size();
    const bool swept = sweep->values.size() > 1;
    if (sweep->key == "budget") {
      const auto* number = std::get_if<int64_t>(&value);
      setting.budget = number != nullptr ? static_cast<int>(*number) : -1;
      if (swept || number != nullptr) {
        parts.push_back(fmt::format("budget={}", number != nullptr ? option_text(value) : "all"));
      }
      continue;
    }
    std::erase_if(setting.options, [&](const OptionEntry& e) { return e.key == sweep->key; });
    setting.options.push_back({sweep->key, value, "--set"});
    parts.push_back(fmt::format("{}={}", sweep->key, option_text(value)));
  }
  std::reverse(parts.begin(), parts.end());
  setting.name = parts.empty() ? "as published" : fmt::format("{}", fmt::join(parts, " "));
  return setting;
}

std::string setting_line(const Setting& setting, const ReplayTotals& totals,
                         const PredictedSpeedup& predicted) {
  constexpr size_t kShown = 6;
  std::string acceptance;
  for (size_t i = 0; i < std::min(totals.reached_at.size(), kShown); ++i) {
    const double accepted =
        i < totals.accepted_at.size() ? static_cast<double>(totals.accepted_at[i]) : 0.0;
    acceptance += fmt::format(" {:.2f}", accepted / static_cast<double>(totals.reached_at[i]));
  }
  const bool any = totals.steps > 0;
  const auto per_step = [&](int64_t sum) {
    return any ? std::optional(static_cast<double>(sum) / static_cast<double>(totals.steps))
               : std::nullopt;
  };
  return fmt::format("{:<40} {:>8} {:>8} {:>9} {:>9} {:>11}  {}\n", setting.name,
                     number_text(per_step(totals.emitted), 3),
                     number_text(per_step(totals.rows), 2), number_text(predicted.speedup, 2),
                     number_text(predicted.clairvoyant, 2), totals.steps, acceptance);
}

nlohmann::ordered_json setting_json(const Setting& setting, const ReplayTotals& totals,
                                    const PredictedSpeedup& predicted) {
  nlohmann::ordered_json json = {{"setting", setting.name},
                                 {"budget", setting.budget},
                                 {"steps", totals.steps},
                                 {"tokens", totals.emitted},
                                 {"rows", totals.rows},
                                 {"drafted", totals.drafted},
                                 {"accepted", totals.accepted},
                                 {"reached_at", totals.reached_at},
                                 {"accepted_at", totals.accepted_at},
                                 {"tokens_per_step", nullptr},
                                 {"predicted_speedup", nullptr},
                                 {"clairvoyant_speedup", nullptr}};
  if (totals.steps > 0) json["tokens_per_step"] = totals.tokens_per_step();
  if (predicted.speedup) json["predicted_speedup"] = *predicted.speedup;
  if (predicted.clairvoyant) json["clairvoyant_speedup"] = *predicted.clairvoyant;
  return json;
}

}  // namespace

int replay_command(Arguments args) {
  CommandLine line("coppice replay",
                   "Tries a method's settings on the recorded answers of a run, without the model.",
                   "  coppice replay results/quickstart --drafter prompt_lookup \\\n"
                   "      --set draft_length=1..10 --set max_ngram=2,3,4\n"
                   "  coppice replay results/quickstart --set draft_length=1..8 \\\n"
                   "      --costs 1:1,2:1.05,4:1.2,8:1.8\n"
                   "  coppice replay results/quickstart --drafter oracle --set depth=1..8 \\\n"
                   "      --set answers=results/quickstart/prompts.jsonl\n");
  line.add<ReplayOptions>("Options");
  line.positional("run");
  if (!line.parse(args)) return 0;
  const auto options = line.read<ReplayOptions>();
  if (options.run.empty()) throw Error("coppice replay: name the folder of a run");
  const MethodConfig base = read_method(options.drafter, 0.0f);
  const MethodEntry& method = find_method(base.spec.method);
  if (needs_draft_model(method, base.spec.options)) {
    throw Error(
        "coppice replay: method {} needs a draft model; only methods that see token ids "
        "alone can be replayed",
        base.spec.method);
  }
  const std::vector<Sweep> sweeps = sweeps_of(options);
  const RecordedRun run = read_recorded_run(options.run);
  std::optional<CostPoints> costs;
  if (!options.costs.empty()) {
    costs = CostPoints::parse(options.costs);
  } else if (!run.pass_ms.empty()) {
    costs = CostPoints::of_passes(run.pass_ms);
  }

  size_t settings = 1;
  for (const Sweep& sweep : sweeps) settings *= sweep.values.size();
  if (!options.json) {
    fmt::print("{} answers, {} settings{}\n{:<40} {:>8} {:>8} {:>9} {:>9} {:>11}  {}\n",
               run.answers.size(), settings,
               costs ? "" : "; speedups need --costs, or a run with an arm under the budget auto",
               base.name, "tokens", "rows", "predicted", "clairvoy-", "steps",
               "acceptance by position");
    fmt::print("{:<40} {:>8} {:>8} {:>9} {:>9}\n", "", "/ step", "/ step", "speedup", "ant bound");
  }
  const auto start = std::chrono::steady_clock::now();
  for (size_t index = 0; index < settings; ++index) {
    const Setting setting = setting_at(sweeps, base.spec.options, index);
    check_keys(setting.options, options_of(method, setting.options), base.spec.method);
    MethodParts parts;
    for (const RecordedAnswer& answer : run.answers) {
      const auto length = static_cast<int>(answer.prompt_ids.size()) + answer.most_tokens;
      parts.context = std::max(parts.context, length);
    }
    const ReplayTotals totals = replay_answers(
        run, [&] { return method.make(setting.options, parts); }, setting.budget);
    const PredictedSpeedup predicted = costs ? predict_speedup(totals, *costs) : PredictedSpeedup{};
    fmt::print("{}", options.json ? setting_json(setting, totals, predicted).dump() + "\n"
                                  : setting_line(setting, totals, predicted));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(stderr, "replayed {} settings in {:.2f} s\n", settings, seconds);
  return 0;
}

}  // namespace coppice
