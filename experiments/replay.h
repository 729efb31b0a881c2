// Replays a run's recorded answers with another drafter, without the model: under `greedy` and
// `coupled` the text does not depend on what is drafted, so a drafter that sees token ids alone
// does what it would have done, and steps and acceptance are exact.
//
//   std::vector<RecordedAnswer> answers = read_answers("results/quickstart");
//   ReplayTotals totals = replay_answers(answers, make_drafter, {.budget = 5});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decoding/drafter.h"
#include "experiments/prompt_row.h"

namespace coppice {

struct RecordedAnswer {
  std::string prompt, category;  // the prompt's id
  std::vector<int32_t> prompt_ids, ids;
  int most_tokens = 0;  // the answer could have had
  int context = 0;      // positions it could have had; 0: enough
};

struct RecordedRun {
  std::vector<RecordedAnswer> answers;  // in the order in which they were measured
  bool carried = false;                 // drafters remembered from one answer to the next
  std::vector<double> pass_ms;          // entry n: a pass over n + 1 rows; empty: not recorded
};
/// Answers of the baseline. Throws Error where the folder holds no run, or one without prompt ids.
RecordedRun read_recorded_run(const std::filesystem::path& folder);

/// Sums over the answers, of decoding alone.
struct ReplayTotals {
  int64_t steps = 0, emitted = 0, rows = 0, drafted = 0, accepted = 0;
  std::vector<int64_t> reached_at, accepted_at;  // by draft position
  std::vector<int64_t> steps_with_rows;          // entry n: steps of n + 1 rows
  std::vector<int> matches;                      // a step each: accepted nodes

  double tokens_per_step() const { return static_cast<double>(emitted) / steps; }
};

using DrafterMaker = std::function<std::unique_ptr<Drafter>()>;

/// `budget` bounds the nodes of a step; -1: as many as the drafter proposes. A drafter is made anew
/// for each answer, or once where memory is carried. Throws Error when it needs more than ids.
ReplayTotals replay_answers(const RecordedRun& run, const DrafterMaker& make, int budget);

/// "1:1,2:1.05,8:1.8": the cost of a pass by its rows, linear between the points and behind them.
class CostPoints {
 public:
  /// Throws Error naming the point that is none.
  static CostPoints parse(std::string_view text);
  static CostPoints of_passes(std::span<const double> pass_ms);
  double of(int rows) const;

 private:
  std::vector<std::pair<int, double>> points_;  // ascending rows; not empty
};

/// None where there was no step.
struct PredictedSpeedup {
  std::optional<double> speedup;  // drafting free
  std::optional<double> clairvoyant;
};
PredictedSpeedup predict_speedup(const ReplayTotals& totals, const CostPoints& costs);

}  // namespace coppice
