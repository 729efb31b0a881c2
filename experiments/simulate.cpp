// See simulate.h.
#include "experiments/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "drafters/methods.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kLeastSteps = 3;  // for a median

/// Least squares; 0 where the contexts do not differ.
double slope_of(const std::vector<std::pair<int, double>>& points) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const auto& [context, ms] : points) {
    n += 1;
    x += context;
    y += ms;
    xx += double{1} * context * context;
    xy += context * ms;
  }
  const double spread = n * xx - x * x;
  return spread > 0 ? std::max(0.0, (n * xy - x * y) / spread) : 0.0;
}

/// The faster nine in ten: what disturbs a step only makes it slower.
std::vector<std::pair<int, double>> undisturbed(std::vector<std::pair<int, double>> points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  points.resize(points.size() - points.size() / 10);
  return points;
}

bool drafts_by_model(const std::string& method) {
  return find_method(method).needs_draft_model || method == "layer_skip";
}

/// Decode times of prompts, and what they gave.
struct Decoded {
  double ms = 0;
  int tokens = 0;
  int steps = 0;
};

}  // namespace

RecordedCosts::RecordedCosts(const ReportedRun& run) {
  std::map<int, std::vector<std::pair<int, double>>> by_rows;
  for (const RecordedStep& step : run.steps) {
    if (step.record.prefill) continue;
    by_rows[step.record.rows].emplace_back(step.record.position + 1, step.record.target_ms);
  }
  if (by_rows[1].size() < kLeastSteps) {
    throw Error(
        "{}: holds no steps to fit a machine's costs to; run the experiment again, which writes "
        "steps.jsonl",
        run.label);
  }
  per_token_ = slope_of(undisturbed(by_rows[1]));
  for (const auto& [rows, points] : by_rows) {
    if (points.size() < kLeastSteps) continue;
    std::vector<double> ms;
    for (const auto& [context, time] : points) ms.push_back(time - per_token_ * context);
    at_no_context_[rows] = *percentile(ms, 0.5);
  }
}

double RecordedCosts::pass_ms(int rows, int context) const {
  const auto& points = at_no_context_;
  auto right = points.lower_bound(rows);
  double ms = 0.0;
  if (points.size() == 1) {
    ms = points.begin()->second;
  } else {
    if (right == points.begin()) ++right;
    if (right == points.end()) --right;
    const auto left = std::prev(right);
    const double slope = (right->second - left->second) / (right->first - left->first);
    ms = left->second + slope * (rows - left->first);
  }
  return ms + per_token_ * context;
}

DeviceCosts::DeviceCosts(const Device& device, const ModelShape& shape,
                         const RecordedCosts& recorded, int typical_context)
    : device_(device), shape_(shape), devices_(devices_needed(device, shape)) {
  scale_ = pass_ms(1, typical_context) / recorded.pass_ms(1, typical_context);
}

double DeviceCosts::pass_ms(int rows, int context) const {
  const StepSize size{.rows = rows, .sequences = 1, .context = context, .devices = devices_};
  return 1e3 * predict_step(device_, shape_, size).seconds;
}

int typical_context(const ReportedRun& run) {
  double sum = 0, count = 0;
  for (const RecordedStep& step : run.steps) {
    if (step.record.prefill) continue;
    sum += step.record.position + 1;
    count += 1;
  }
  return count > 0 ? std::max(1, static_cast<int>(sum / count)) : 1;
}

std::vector<SimulatedMethod> simulate(const ReportedRun& run, const PassCosts& costs) {
  std::map<std::string, std::map<std::string, Decoded>> decoded;  // by arm and prompt
  std::map<std::string, std::string> method_of;
  method_of[run.summary.baseline.arm.name] = run.summary.baseline.arm.method;
  for (const MethodSummary& m : run.summary.methods) method_of[m.arm.name] = m.arm.method;
  for (const RecordedStep& step : run.steps) {
    const StepRecord& record = step.record;
    if (record.prefill) continue;
    if (record.batch > 1) {
      throw Error("{}: decoded in batches; only runs of one sequence at a time are replayed",
                  run.label);
    }
    const double draft = drafts_by_model(method_of.at(step.arm))
                             ? costs.model_draft_ms(record.draft_ms)
                             : record.draft_ms;
    Decoded& sum = decoded[step.arm][step.prompt];
    sum.ms += costs.pass_ms(record.rows, record.position + 1) + draft +
              costs.judge_ms(record.judge_ms) + record.other_ms;
    sum.tokens += record.emitted;
    ++sum.steps;
  }
  const auto& baseline = decoded[run.summary.baseline.arm.name];
  const auto simulated = [&](const ArmSummary& arm) {
    SimulatedMethod out;
    out.name = arm.arm.name;
    double plain_ms = 0, own_ms = 0, tokens = 0, all_ms = 0, steps = 0;
    double plain_all = 0, plain_steps = 0;
    for (const auto& [prompt, own] : decoded[arm.arm.name]) {
      const auto plain = baseline.find(prompt);
      if (plain == baseline.end()) continue;
      const int common = std::min(own.tokens, plain->second.tokens);
      plain_ms += plain->second.ms * common / std::max(plain->second.tokens, 1);
      own_ms += own.ms * common / std::max(own.tokens, 1);
      tokens += own.tokens;
      all_ms += own.ms;
      steps += own.steps;
      plain_all += plain->second.ms;
      plain_steps += plain->second.steps;
    }
    if (own_ms > 0) {
      out.predicted = plain_ms / own_ms;
      out.tokens_per_s = 1e3 * tokens / all_ms;
      out.step_cost = (all_ms / steps) / (plain_all / plain_steps);
    }
    return out;
  };
  std::vector<SimulatedMethod> out = {simulated(run.summary.baseline)};
  out[0].measured = Ratio{1.0, std::nullopt};
  for (const MethodSummary& method : run.summary.methods) {
    SimulatedMethod next = simulated(method);
    next.measured = method.speedup;
    std::vector<std::vector<double>> passes;  // outlive the spans
    std::vector<Hindsight> answers;
    for (const PromptRow& row : run.rows) {
      if (row.arm != method.arm.name || row.matches.empty()) continue;
      const int longest = *std::max_element(row.matches.begin(), row.matches.end());
      const int middle = row.prompt_tokens + static_cast<int>(row.ids.size()) / 2;
      auto& pass = passes.emplace_back();
      for (int rows = 1; rows <= longest + 1; ++rows) pass.push_back(costs.pass_ms(rows, middle));
      answers.push_back({row.matches, pass});
    }
    next.clairvoyant = clairvoyant_speedup(answers);
    out.push_back(std::move(next));
  }
  return out;
}

}  // namespace coppice
