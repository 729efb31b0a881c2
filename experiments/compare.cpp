// See compare.h.
#include "experiments/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/manifest.h"
#include "experiments/run_folder.h"
#include "experiments/run_rows.h"
#include "experiments/summary.h"
#include "experiments/sweep_folder.h"
#include "experiments/table.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kMostChanges = 30;
constexpr size_t kLongestValue = 60;

struct Run {
  ordered_json manifest;
  std::vector<ArmInfo> arms;
  std::vector<PromptRow> rows;
  ordered_json summary;  // of summary.json, where there are no rows
};

Run read_run(const fs::path& folder) {
  if (holds_sweep(folder)) {
    throw Error("{}: is a sweep; compare runs, such as two of its cells/HASH", folder.string());
  }
  Run run;
  run.manifest = read_manifest(folder);
  run.arms = arms_of(run.manifest, (folder / "manifest.json").string());
  run.rows = read_rows(folder);
  if (run.rows.empty() && fs::exists(folder / "summary.json")) {
    run.summary = ordered_json::parse(read_whole_file(folder / "summary.json"), nullptr, false);
  }
  return run;
}

std::string value_text(const ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return text.size() <= kLongestValue ? text : text.substr(0, kLongestValue) + "...";
}

std::vector<std::string> changes_between(const ordered_json& a, const ordered_json& b) {
  std::vector<std::string> changes;
  for (const char* part : {"config", "model", "draft_model", "machine", "backend", "versions"}) {
    const ordered_json before = a.value(part, ordered_json());
    const ordered_json after = b.value(part, ordered_json());
    for (const auto& change : ordered_json::diff(before, after)) {
      const auto path = change.at("path").get<std::string>();
      if (path == "/bench/name") continue;  // what it is called changes nothing
      const ordered_json::json_pointer at(path);
      const auto op = change.at("op").get<std::string>();
      changes.push_back(fmt::format("{}{}: {} -> {}", part, path,
                                    op == "add" ? "nothing" : value_text(before.at(at)),
                                    op == "remove" ? "nothing" : value_text(change.at("value"))));
    }
  }
  return changes;
}

using RowsByPrompt = std::map<std::string, const PromptRow*>;

/// Rows of an arm that have decoded something.
RowsByPrompt rows_of(const Run& run, const std::string& arm) {
  RowsByPrompt rows;
  for (const PromptRow& row : run.rows) {
    if (row.arm == arm && row.error.empty() && row.decode_tokens > 0) rows[row.prompt] = &row;
  }
  return rows;
}

double token_ms(const PromptRow& row) {
  return row.decode_ms / row.decode_tokens;
}

/// A prompt's times in both runs, for as many tokens as the shortest answer has.
struct Times {
  std::vector<double> method_a, method_b, base_a, base_b;
};

void compare_arm(ComparedArm& arm, const Run& a, const Run& b, bool is_baseline) {
  const RowsByPrompt rows_a = rows_of(a, arm.name), rows_b = rows_of(b, arm.name);
  const RowsByPrompt plain_a = rows_of(a, a.arms[0].name), plain_b = rows_of(b, b.arms[0].name);
  Times times;
  size_t common = 0, same = 0;
  for (const auto& [prompt, row_a] : rows_a) {
    if (!rows_b.contains(prompt) || !plain_a.contains(prompt) || !plain_b.contains(prompt)) {
      continue;
    }
    const PromptRow& row_b = *rows_b.at(prompt);
    const int tokens = std::min(row_a->decode_tokens, row_b.decode_tokens);
    ++common;
    same += row_a->ids == row_b.ids;
    times.method_a.push_back(token_ms(*row_a) * tokens);
    times.method_b.push_back(token_ms(row_b) * tokens);
    times.base_a.push_back(token_ms(*plain_a.at(prompt)) * tokens);
    times.base_b.push_back(token_ms(*plain_b.at(prompt)) * tokens);
  }
  if (common == 0) return;
  arm.identical = static_cast<double>(same) / static_cast<double>(common);
  arm.b_over_a = is_baseline
                     ? compare_pairs(times.method_a, times.method_b)
                     : compare_ratios(times.base_b, times.method_b, times.base_a, times.method_a);
}

std::optional<double> number_at(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// An arm's figures: speedup (of the baseline: tokens a second) and tokens per step.
struct Figures {
  std::optional<double> figure, tokens_per_step;
};
using FiguresByArm = std::map<std::string, Figures>;

FiguresByArm figures_of(const Run& run) {
  FiguresByArm figures;
  if (run.summary.is_object()) {
    for (const auto& method : run.summary.value("methods", ordered_json::array())) {
      figures[method.value("name", "")] = {
          number_at(method.value("speedup", ordered_json::object()), "value"),
          number_at(method, "tokens_per_step")};
    }
    figures[run.arms[0].name] = {
        number_at(run.summary.value("baseline", ordered_json::object()), "decode_tokens_per_s"),
        1.0};
    return figures;
  }
  const Summary summary = summarise(run.rows, run.arms);
  figures[run.arms[0].name] = {summary.baseline.decode_tokens_per_s,
                               summary.baseline.tokens_per_step};
  for (const MethodSummary& method : summary.methods) {
    figures[method.arm.name] = {
        method.speedup ? std::optional(method.speedup->value) : std::nullopt,
        method.tokens_per_step};
  }
  return figures;
}

std::vector<std::string> names_beyond(const std::vector<ArmInfo>& arms,
                                      const std::vector<ArmInfo>& others) {
  std::vector<std::string> names;
  for (const ArmInfo& arm : arms) {
    const bool shared = std::any_of(others.begin(), others.end(),
                                    [&](const ArmInfo& other) { return other.name == arm.name; });
    if (!shared) names.push_back(arm.name);
  }
  return names;
}

std::string verdict(const ComparedArm& arm) {
  if (!arm.b_over_a || !arm.b_over_a->ratio.ci95) return "n/a";
  if (!arm.b_over_a->differs()) return "no difference";
  return arm.b_over_a->ratio.value > 1.0 ? "B is faster" : "B is slower";
}

std::string ratio_text(const std::optional<PairedComparison>& compared) {
  if (!compared) return "n/a";
  const Ratio& ratio = compared->ratio;
  if (!ratio.ci95) return fmt::format("{:.3f}", ratio.value);
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.value, ratio.ci95->low, ratio.ci95->high);
}

}  // namespace

Comparison compare_runs(const fs::path& path_a, const fs::path& path_b) {
  const Run a = read_run(path_a), b = read_run(path_b);
  Comparison out{path_a, path_b, changes_between(a.manifest, b.manifest)};
  std::set<std::string> of_a, of_b;
  for (const auto& id : a.manifest.value("prompts", ordered_json::array()))
    of_a.insert(id.get<std::string>());
  for (const auto& id : b.manifest.value("prompts", ordered_json::array()))
    of_b.insert(id.get<std::string>());
  out.prompts_a = of_a.size();
  out.prompts_b = of_b.size();
  for (const std::string& id : of_a) out.common += of_b.contains(id);
  out.only_a = names_beyond(a.arms, b.arms);
  out.only_b = names_beyond(b.arms, a.arms);

  FiguresByArm figures_a = figures_of(a), figures_b = figures_of(b);
  for (const ArmInfo& info : a.arms) {
    if (std::find(out.only_a.begin(), out.only_a.end(), info.name) != out.only_a.end()) continue;
    ComparedArm arm;
    arm.name = info.name;
    arm.rule = info.rule;
    arm.figure_a = figures_a[info.name].figure;
    arm.figure_b = figures_b[info.name].figure;
    arm.tokens_per_step_a = figures_a[info.name].tokens_per_step;
    arm.tokens_per_step_b = figures_b[info.name].tokens_per_step;
    compare_arm(arm, a, b, info.name == a.arms[0].name);
    out.arms.push_back(std::move(arm));
  }
  return out;
}

std::vector<std::string> disagreements(const Comparison& comparison) {
  std::vector<std::string> out;
  const bool same_setting =
      std::none_of(comparison.changes.begin(), comparison.changes.end(), [](const auto& change) {
        return change.starts_with("config") || change.starts_with("model") ||
               change.starts_with("draft_model") || change.starts_with("backend");
      });
  for (size_t i = 0; i < comparison.arms.size(); ++i) {
    const ComparedArm& arm = comparison.arms[i];
    const bool fixed = arm.rule == "greedy" || arm.rule == "coupled";
    if (same_setting && fixed && arm.identical && *arm.identical < 1.0) {
      out.push_back(
          fmt::format("{}: {:.1f} % of its texts are the same", arm.name, 100.0 * *arm.identical));
    }
    if (i == 0) continue;  // the baseline's speed is the machine's
    std::optional<double> ratio;
    if (arm.b_over_a && arm.b_over_a->differs()) ratio = arm.b_over_a->ratio.value;
    if (!arm.b_over_a && arm.figure_a && arm.figure_b) ratio = *arm.figure_b / *arm.figure_a;
    if (ratio && std::max(*ratio, 1.0 / *ratio) > 1.0 + kAgreement) {
      out.push_back(fmt::format("{}: speedup {} became {}", arm.name, number_text(arm.figure_a, 2),
                                number_text(arm.figure_b, 2)));
    }
  }
  return out;
}

std::string comparison_text(const Comparison& comparison) {
  std::string out = fmt::format("A: {}\nB: {}\n\n", comparison.a.string(), comparison.b.string());
  if (comparison.changes.empty()) {
    out += "Nothing changed: the same config, model, machine and version (an A/A check).\n";
  } else {
    out += "What changed:\n";
    const size_t listed = std::min(comparison.changes.size(), kMostChanges);
    for (size_t i = 0; i < listed; ++i) out += fmt::format("- {}\n", comparison.changes[i]);
    if (listed < comparison.changes.size()) {
      out += fmt::format("- and {} more\n", comparison.changes.size() - listed);
    }
  }
  if (!comparison.only_a.empty()) {
    out += fmt::format("Only in A: {}\n", fmt::join(comparison.only_a, ", "));
  }
  if (!comparison.only_b.empty()) {
    out += fmt::format("Only in B: {}\n", fmt::join(comparison.only_b, ", "));
  }
  out += fmt::format("Prompts: {} and {}, {} in both.\n\n", comparison.prompts_a,
                     comparison.prompts_b, comparison.common);
  Table table({"method", "A", "B", "B over A [95 %]", "effect", "verdict", "tokens per step, A",
               "B", "same texts"});
  for (size_t i = 0; i < comparison.arms.size(); ++i) {
    const ComparedArm& arm = comparison.arms[i];
    const auto figure = [&](const std::optional<double>& value) {
      return i == 0 ? number_text(value, 1) + " tok/s" : number_text(value, 2);
    };
    table.add({arm.name, figure(arm.figure_a), figure(arm.figure_b), ratio_text(arm.b_over_a),
               number_text(arm.b_over_a ? arm.b_over_a->effect : std::nullopt, 2), verdict(arm),
               number_text(arm.tokens_per_step_a, 2), number_text(arm.tokens_per_step_b, 2),
               arm.identical ? fmt::format("{:.1f} %", 100.0 * *arm.identical) : "n/a"});
  }
  return out + table.markdown() +
         "\nA and B are speedups over each run's own baseline, and of the baseline its tokens a "
         "second. The\ninterval is a paired bootstrap over the prompts in both; the effect is the "
         "mean of the logarithms of\ntheir ratios over their deviation (0.2 small, 0.5 medium, 0.8 "
         "large). One interval in twenty leaves 1\nout by chance.\n";
}

}  // namespace coppice
