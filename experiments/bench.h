// The commands `bench` and `report`: a whole experiment from config to report, and its report made
// again from the rows.
//
//   return run_bench({.config = "configs/quickstart.toml", .out = "results/quickstart"});
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/bench_config.h"
#include "experiments/interrupt.h"
#include "experiments/run_folder.h"

namespace coppice {

struct BenchRequest {
  std::filesystem::path config;        // TOML, or the manifest.json of an earlier run
  std::vector<std::string> overrides;  // "bench.seed=7"
  std::filesystem::path out;           // empty: results/NAME
  Existing existing = Existing::refuse;
  std::filesystem::path spec_bench_answers;  // folder for them, see spec_bench.h; empty: none
  std::filesystem::path trace;               // a timeline of all steps; empty: none, as for a sweep

  // Of a config with a [sweep] table alone; see sweep_run.h.
  std::string jobs = "1";           // cells at a time, or "slurm"
  std::vector<std::string> sbatch;  // more options for it
  bool dry_run = false;             // list the cells
  std::string cell;                 // run this one alone, by its hash
  std::filesystem::path program;    // that runs a cell; empty: this one
};

/// Runs the experiment, or every cell of a sweep; progress goes to standard error, the headline
/// table to standard output. Returns the exit code: 0, 1 when a prompt failed, kInterruptedStatus
/// after SIGINT or SIGTERM (what is finished is kept and reported). Throws Error or Failure.
int run_bench(const BenchRequest& request);
/// The same for a config that is read already; `out` empty: results/NAME; `timeline` empty: none.
int run_bench(const BenchConfig& config, const std::filesystem::path& out, Existing existing,
              const std::filesystem::path& timeline = {});

struct ReportRequest {
  std::filesystem::path run;     // folder of a run
  std::filesystem::path readme;  // file whose table is to be replaced; empty: none
};

/// Writes summary.json and report.md from manifest.json and prompts.jsonl, and the headline table
/// into the README between `<!-- table:NAME -->` and `<!-- /table -->`, NAME being the
/// experiment's.
void write_report(const ReportRequest& request);

}  // namespace coppice
