// A run's answers in the format of Spec-Bench (Xia 2024): one JSON object a question and line, with
// all its turns, so that its evaluation/speed.py reads them.
//
//   write_spec_bench_answers(config, "results/spec", "answers");   // answers/baseline.jsonl, ...
#pragma once

#include <filesystem>

#include "experiments/bench_config.h"

namespace coppice {

/// A file for each arm of the run, named by it; its wall times hold prefill, as there. Throws
/// Failure when they cannot be written.
void write_spec_bench_answers(const BenchConfig& config, const std::filesystem::path& run,
                              const std::filesystem::path& folder);

}  // namespace coppice
