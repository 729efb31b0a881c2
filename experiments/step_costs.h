// What passes cost by their rows, as a run's recorded steps say.
//
//   for (const auto& [rows, cost] : relative_costs(run)) ...   // cost of one row: 1
#pragma once

#include <map>

#include "experiments/reported_run.h"

namespace coppice {

double total_ms(const StepRecord& step);
/// Median time of a decode pass over so many rows, of that over one; rows that fewer than five
/// steps had are left out. From the budget's curve where the steps are not kept. Empty: unknown.
std::map<int, double> relative_costs(const ReportedRun& run);

}  // namespace coppice
