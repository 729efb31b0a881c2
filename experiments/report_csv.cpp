// See report_csv.h.
#include "experiments/report_csv.h"

#include <fmt/ranges.h>

#include <optional>

namespace coppice {
namespace {

std::string text_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}
std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

/// value, low, high
std::string ratio_cells(const std::optional<Ratio>& ratio) {
  if (!ratio) return ",,";
  if (!ratio->ci95) return fmt::format("{},,", ratio->value);
  return fmt::format("{},{},{}", ratio->value, ratio->ci95->low, ratio->ci95->high);
}

std::string percentile_cells(const Percentiles& p) {
  return fmt::format("{},{},{}", cell(p.p50), cell(p.p90), cell(p.p99));
}

std::string arm_line(const ReportedRun& run, const ArmSummary& arm, const MethodSummary* method) {
  const PhaseTimes none;
  const bool timed = arm.phase_ms.has_value();
  const PhaseTimes ms = arm.phase_ms.value_or(none);
  const auto phase = [&](double value) { return timed ? fmt::format("{}", value) : ""; };
  const Ratio one{1.0, std::nullopt};
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                     text_cell(run.label), text_cell(arm.arm.name), text_cell(arm.arm.method),
                     arm.arm.rule, arm.arm.lossless ? "yes" : "no", arm.prompts,
                     ratio_cells(method != nullptr ? method->speedup : std::optional<Ratio>(one)),
                     cell(arm.decode_tokens_per_s), cell(arm.tokens_per_step),
                     cell(arm.rows_per_step), arm.steps, arm.steps_without_draft, arm.drafted,
                     arm.accepted, cell(arm.step_ms), phase(ms.draft), phase(ms.target),
                     phase(ms.judge), phase(ms.other), percentile_cells(arm.ttft_ms),
                     percentile_cells(arm.tpot_ms),
                     cell(method != nullptr ? method->step_cost_ratio : std::optional<double>(1.0)),
                     cell(method != nullptr ? method->identical_rate : std::optional<double>(1.0)),
                     cell(method != nullptr ? method->predicted_speedup : std::nullopt),
                     cell(method != nullptr ? method->clairvoyant_speedup : std::nullopt));
}

}  // namespace

std::vector<CsvFile> report_csv(std::span<const ReportedRun> runs) {
  std::string methods =
      "run,name,method,rule,lossless,prompts,speedup,speedup_low,speedup_high,tokens_per_s,"
      "tokens_per_step,rows_per_step,steps,steps_without_draft,drafted,accepted,step_ms,draft_ms,"
      "target_ms,judge_ms,other_ms,ttft_ms_p50,ttft_ms_p90,ttft_ms_p99,tpot_ms_p50,tpot_ms_p90,"
      "tpot_ms_p99,step_cost,identical,predicted_speedup,clairvoyant_speedup\n";
  std::string categories =
      "run,name,category,prompts,speedup,speedup_low,speedup_high,tokens_per_step\n";
  std::string acceptance = "run,name,position,acceptance\n";
  std::string spec_bench;
  for (const ReportedRun& run : runs) {
    methods += arm_line(run, run.summary.baseline, nullptr);
    for (const MethodSummary& method : run.summary.methods) {
      methods += arm_line(run, method, &method);
      const std::string start =
          fmt::format("{},{}", text_cell(run.label), text_cell(method.arm.name));
      for (const auto& [category, at] : method.by_category) {
        categories += fmt::format("{},{},{},{},{}\n", start, text_cell(category), at.prompts,
                                  ratio_cells(at.speedup), cell(at.tokens_per_step));
      }
      for (size_t i = 0; i < method.acceptance_by_position.size(); ++i) {
        acceptance +=
            fmt::format("{},{},{}\n", start, i + 1, cell(method.acceptance_by_position[i]));
      }
    }
    for (const SpecBenchSpeedup& at : spec_bench_speedups(run)) {
      spec_bench +=
          fmt::format("{},{},{},{}\n", text_cell(run.label), text_cell(at.arm), at.task, at.value);
    }
  }
  std::vector<CsvFile> files = {
      {"methods.csv", methods}, {"categories.csv", categories}, {"acceptance.csv", acceptance}};
  if (!spec_bench.empty()) {
    files.push_back({"spec_bench.csv", "run,name,task,spec_bench_speedup\n" + spec_bench});
  }
  return files;
}

}  // namespace coppice
