// See step_costs.h.
#include "experiments/step_costs.h"

#include <algorithm>
#include <vector>

namespace coppice {

double total_ms(const StepRecord& step) {
  return step.draft_ms + step.target_ms + step.judge_ms + step.other_ms;
}

std::map<int, double> relative_costs(const ReportedRun& run) {
  constexpr size_t kLeast = 5;
  std::map<int, std::vector<double>> ms;
  for (const RecordedStep& step : run.steps) {
    if (!step.record.prefill && step.record.batch == 1) {
      ms[step.record.rows].push_back(step.record.target_ms);
    }
  }
  std::map<int, double> out;
  for (const auto& [rows, times] : ms) {
    if (times.size() >= kLeast) out[rows] = *percentile(times, 0.5);
  }
  if (out.empty()) {
    std::map<int, int> counts;
    for (const PromptRow& row : run.rows) {
      for (size_t n = 0; n < row.pass_ms.size(); ++n) {
        const int rows = static_cast<int>(n) + 1;
        out[rows] += row.pass_ms[n] / row.pass_ms[0];
        ++counts[rows];
      }
    }
    for (auto& [rows, sum] : out) sum /= counts[rows];
  }
  const auto one = out.find(1);
  if (one == out.end()) return {};
  const double plain = one->second;
  for (auto& entry : out) entry.second /= plain;
  return out;
}

}  // namespace coppice
