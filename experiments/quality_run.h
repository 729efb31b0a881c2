// What the answers of a run, or of every cell of a sweep, are worth beside what they cost: likeness
// to the baseline's, likelihood under the target, repetition, and the scores of the tasks they
// belong to. Arms that nothing beats in both speed and quality are the frontier.
//
//   const auto rows = run_quality("results/typical", {});
//   fmt::print("{}", quality_table(rows).markdown());
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/sandbox.h"
#include "experiments/table.h"

namespace coppice {

struct QualityOptions {
  std::filesystem::path against;  // another run, in place of the run's own baseline
  bool score = true;              // by the target model, which is loaded
  bool run_code = false;          // judge code by running it, confined
  SandboxLimits limits;
};

/// An arm's answers. What cannot be known (no references, one answer alone) is empty.
struct AnswerQuality {
  std::string cell;  // of a sweep: "epsilon=0.1"
  std::string arm, rule;
  bool lossless = true;
  int answers = 0;
  std::optional<double> speedup;
  double identical = 0;              // share, of what they are compared with
  std::optional<double> divergence;  // median first token that differs, of those that do
  double repetition = 0;             // mean repetition_rate()
  std::optional<double> nll;         // of a token under the target at temperature 1, nats
  std::optional<double> gsm8k;       // share of right final numbers
  std::optional<double> passed;      // share of programs that pass their tests
  std::optional<double> rouge_l, exact;
  bool frontier = false;

  /// What the frontier is drawn by: the task's score, else -nll, else likeness.
  double worth() const;
};

/// `run` is the folder of a run or of a sweep. Throws Error when it holds neither, or no rows.
std::vector<AnswerQuality> run_quality(const std::filesystem::path& run,
                                       const QualityOptions& options);

/// Columns that no row has a value for are left out.
Table quality_table(const std::vector<AnswerQuality>& rows);
std::string quality_definitions();
nlohmann::ordered_json quality_to_json(const std::vector<AnswerQuality>& rows);

}  // namespace coppice
