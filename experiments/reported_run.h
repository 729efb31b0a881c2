// A run as reports read it: its manifest, the rows and figures of the prompts that every arm has
// answered, and its steps where they are kept.
//
//   ReportedRun run = read_reported_run("results/quickstart");
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/prompt_row.h"
#include "experiments/summary.h"

namespace coppice {

/// An arm's line of quality.json, which `coppice quality` wrote.
struct QualityPoint {
  std::string arm;
  std::optional<double> speedup;
  std::optional<double> score;  // of the task: the share that is right, or ROUGE-L
  std::optional<double> nll;    // of a token under the target, nats
  double identical = 0;         // share of the baseline's answers
};

struct ReportedRun {
  std::string label;  // the experiment's name, or what tells it from others of that name
  nlohmann::ordered_json manifest;
  std::vector<PromptRow> rows;
  std::vector<RecordedStep> steps;  // empty where steps.jsonl is not kept
  Summary summary;
  std::vector<QualityPoint> quality;  // empty where it was not judged
};

/// Throws Error where the folder holds no run.
ReportedRun read_reported_run(const std::filesystem::path& folder);
/// Of runs, and of sweeps, whose finished cells are taken; labels made distinct. Throws Error as
/// above, and for none.
std::vector<ReportedRun> read_reported_runs(std::span<const std::string> folders);
/// Steps of steps.jsonl; none when the file is absent.
std::vector<RecordedStep> read_steps(const std::filesystem::path& folder);

/// Spec-Bench's own speedup (Xia 2024; evaluation/speed.py of github.com/hemingkx/Spec-Bench): the
/// mean over questions, all their turns together, of tokens per second, prefill included, over the
/// baseline's mean.
struct SpecBenchSpeedup {
  std::string task;  // "translation", ..., and "overall"
  std::string arm;
  double value = 0.0;
};
/// Empty where the prompts are not those of Spec-Bench's tasks.
std::vector<SpecBenchSpeedup> spec_bench_speedups(const ReportedRun& run);

}  // namespace coppice
