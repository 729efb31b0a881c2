// The plots of a report, as scripts for gnuplot with their data in them.
//
//   draw_plots("report/plots", report_plots(runs));
#pragma once

#include <span>
#include <vector>

#include "experiments/gnuplot.h"
#include "experiments/reported_run.h"

namespace coppice {

/// Those that the runs have figures for.
std::vector<Plot> report_plots(std::span<const ReportedRun> runs);

}  // namespace coppice
