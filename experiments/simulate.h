// What a run would have taken on another machine: its recorded steps, trees and acceptances as they
// were, each pass priced by another cost curve. On the machine that recorded it the curve is fitted
// to the steps themselves, so that the prediction can be held against the measurement.
//
//   RecordedCosts here(run);
//   std::vector<SimulatedMethod> methods = simulate(run, here);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/predicted_step.h"
#include "experiments/reported_run.h"

namespace coppice {

class PassCosts {
 public:
  virtual ~PassCosts() = default;
  /// Of the target's pass of one sequence.
  virtual double pass_ms(int rows, int context) const = 0;
  /// Of judging, which some machines do in the pass.
  virtual double judge_ms(double recorded) const = 0;
  /// Of drafting by a model, that took so long where it was recorded.
  virtual double model_draft_ms(double recorded) const = 0;
};

/// A line over contexts for each number of rows: the medians of the run's own decode steps, with
/// one slope for all. Between numbers of rows linear, and so beyond the last.
class RecordedCosts final : public PassCosts {
 public:
  /// Throws Error where the run holds no steps of one row.
  explicit RecordedCosts(const ReportedRun& run);
  double pass_ms(int rows, int context) const override;
  double judge_ms(double recorded) const override { return recorded; }
  double model_draft_ms(double recorded) const override { return recorded; }

 private:
  std::map<int, double> at_no_context_;
  double per_token_ = 0;
};

/// A device of devices.h, and a model's shape. What tables draft takes the host as long as it did;
/// what a model drafts is as much faster as the target's pass over one row.
class DeviceCosts final : public PassCosts {
 public:
  DeviceCosts(const Device& device, const ModelShape& shape, const RecordedCosts& recorded,
              int typical_context);
  double pass_ms(int rows, int context) const override;
  double judge_ms(double) const override { return 0.0; }  // a kernel of the pass
  double model_draft_ms(double recorded) const override { return recorded * scale_; }

 private:
  const Device& device_;
  const ModelShape& shape_;
  int devices_;
  double scale_;
};

struct SimulatedMethod {
  std::string name;
  std::optional<Ratio> measured;       // where it was recorded
  std::optional<double> predicted;     // speedup by the costs
  std::optional<double> tokens_per_s;  // by the costs
  std::optional<double> clairvoyant;   // bound of the same drafts, cut with hindsight; budget auto
  std::optional<double> step_cost;     // a step of the method over one of the baseline
};

/// Baseline first. Speedups are over the prompts and tokens that both decoded. Throws Error for a
/// run without steps.jsonl, or with batches.
std::vector<SimulatedMethod> simulate(const ReportedRun& run, const PassCosts& costs);

/// Mean context of the run's decode steps.
int typical_context(const ReportedRun& run);

}  // namespace coppice
