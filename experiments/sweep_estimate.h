// How long the cells of a sweep will take: in proportion, for the time left, and in seconds, for a
// dry run.
//
//   print_estimate(sweep, "results/draft_length", 1);
#pragma once

#include <filesystem>

#include "experiments/sweep.h"

namespace coppice {

/// Tokens that a cell decodes at most, the baseline's included. Reads its prompts; throws Error for
/// a line that cannot be read.
double cell_weight(const SweepCell& cell);

/// Lists the cells on standard output with what each will take, and all of them together on `jobs`
/// at a time. The model of each cell is timed for a moment: a step of one row, and one of many.
void print_estimate(const Sweep& sweep, const std::filesystem::path& out, int jobs);

}  // namespace coppice
