// Cells of a sweep as tasks of a Slurm array: submitted, collected by what they leave in their
// folders, and submitted again when Slurm lost them. The folder must be seen by every node.
//
//   SlurmJobs(sweep, folder, command, {"--partition=long"}).run(cells, progress);
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/sweep_run.h"

namespace coppice {

class SlurmJobs {
 public:
  /// `options` go to sbatch as they are.
  SlurmJobs(const Sweep& sweep, const SweepFolder& folder, CellCommand command,
            std::vector<std::string> options)
      : sweep_(sweep),
        folder_(folder),
        command_(std::move(command)),
        options_(std::move(options)) {}

  /// Returns when every cell has ended, or after an interrupt, which cancels the tasks. Tasks that
  /// an earlier run submitted and that Slurm still knows are waited for. Throws Error when there is
  /// no Slurm here, Failure when it does not answer.
  void run(const std::vector<const SweepCell*>& cells, SweepProgress& progress);

 private:
  struct Task {
    const SweepCell* cell;
    size_t index;    // of the cell, for the progress
    std::string id;  // "12_3"; "": to be submitted
    int submitted = 0;
    int missed = 0;  // looks at the queue in a row that did not show it
  };

  void adopt(std::vector<Task>& tasks) const;
  void submit(std::vector<Task>& tasks) const;
  void cancel(const std::vector<Task>& tasks) const;
  bool collect(Task& task, const std::set<std::string>& queued, SweepProgress& progress) const;

  const Sweep& sweep_;
  const SweepFolder& folder_;
  CellCommand command_;
  std::vector<std::string> options_;
};

}  // namespace coppice
