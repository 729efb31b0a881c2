// Runs the cells of a sweep: each is a `coppice bench --cell HASH` of its own, so that one that
// fails, crashes or is killed takes no other with it.
//
//   coppice bench configs/bench/draft_length.toml --dry-run
//   coppice bench configs/bench/draft_length.toml --jobs 4
//   coppice bench configs/bench/draft_length.toml --jobs slurm --sbatch=--partition=long
#pragma once

#include "experiments/bench.h"
#include "experiments/sweep.h"
#include "experiments/sweep_folder.h"

namespace coppice {

/// What starts a cell: the program and its arguments but for `--cell HASH`.
struct CellCommand {
  std::vector<std::string> words;
  std::vector<std::string> for_cell(const std::string& hash) const;
};

/// How far a sweep is: a line on standard error for each cell that ends, with the time left.
class SweepProgress {
 public:
  /// `weights`: of each cell that is still to run, in proportion to the time it takes.
  SweepProgress(const Sweep& sweep, size_t finished, std::vector<double> weights);
  void ended(const SweepCell& cell, size_t index, const CellState& state);

 private:
  using Clock = std::chrono::steady_clock;
  const Sweep& sweep_;
  size_t ended_;
  std::vector<double> weights_;
  double weight_done_ = 0, weight_all_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// Finished cells are skipped, failed ones tried again. Returns the exit code: 0, 1 when a cell
/// failed (they are named on standard error), kInterruptedStatus. Throws Error, or Failure when the
/// folder cannot be written.
int run_sweep(const Sweep& sweep, const BenchRequest& request);

}  // namespace coppice
