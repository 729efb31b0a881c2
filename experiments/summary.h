// The figures of a run, computed from its rows. Every one that can be undefined (no steps, no
// drafts, one prompt) is optional: null in JSON, "n/a" in a report, never NaN.
//
//   Summary summary = summarise(rows, arms);
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/prompt_row.h"
#include "experiments/statistics.h"

namespace coppice {

/// What a run compares, the baseline first.
struct ArmInfo {
  std::string name, method, rule;
  bool lossless = true;
  bool valid = true;  // false: acceptance was forced
};

struct Divergence {
  std::string prompt;
  int token = 0;  // 0-based index of the first id that differs from the baseline's
};
struct FailedRow {
  std::string prompt, arm, error;
};

/// Figures of one arm over the prompts that it and the baseline answered.
struct ArmSummary {
  ArmInfo arm;
  int prompts = 0;
  int64_t steps = 0, steps_without_draft = 0;
  int64_t drafted = 0, accepted = 0, discarded = 0;
  std::optional<double> decode_tokens_per_s;
  std::optional<double> tokens_per_step;  // emitted / target passes of decoding, bonus included
  std::optional<double> rows_per_step;
  std::optional<double> step_ms;
  std::optional<PhaseTimes> phase_ms;  // mean of a step
  std::vector<std::optional<double>> acceptance_by_position;
  Percentiles ttft_ms, tpot_ms;
  std::optional<double> joules_per_token;  // prompts included; where the machine reports energy
};

struct CategorySummary {
  int prompts = 0;
  std::optional<Ratio> speedup;
  std::optional<double> tokens_per_step;
};

struct MethodSummary : ArmSummary {
  std::optional<Ratio> speedup;
  std::optional<double> step_cost_ratio;  // step_ms / the baseline's over the same prompts
  std::optional<double> identical_rate;
  // Under the budget `auto` alone.
  std::optional<double> proposed_per_step;
  std::optional<double> predicted_speedup;
  /// Speedup of the same drafts had each been cut with hindsight, by the measured cost curve,
  /// drafting free. One sequence at a time: undefined for larger batches.
  std::optional<double> clairvoyant_speedup;
  std::vector<Divergence> divergences;
  std::map<std::string, CategorySummary> by_category;
};

struct Summary {
  ArmSummary baseline;
  std::vector<MethodSummary> methods;
  std::vector<FailedRow> failures;
};

/// Steps of one answer, and what their passes cost.
struct Hindsight {
  std::span<const int> matches;     // a step each: proposed nodes in a row that the answer holds
  std::span<const double> pass_ms;  // entry n: a pass over n + 1 rows
};
/// The best ratio of tokens to time that the proposals allow, against one token a pass: each step
/// keeps the first nodes of what the answer held. None where there was no step.
std::optional<double> clairvoyant_speedup(std::span<const Hindsight> answers);

/// `arms[0]` is the baseline. A prompt without a good baseline row counts for no method.
Summary summarise(std::span<const PromptRow> rows, std::span<const ArmInfo> arms);

/// The object of summary.json; `manifest` gives model, machine and backend.
nlohmann::ordered_json summary_to_json(const Summary& summary,
                                       const nlohmann::ordered_json& manifest);

}  // namespace coppice
