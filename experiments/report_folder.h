// A report on one run or several: tables as Markdown, CSV and LaTeX, plots as SVG, and a page that
// holds them all.
//
//   write_report_folder(read_reported_runs(folders), "report");
#pragma once

#include <filesystem>
#include <span>

#include "experiments/reported_run.h"

namespace coppice {

/// Writes report.html, report.md, tables/ and plots/ in `out`, which is made. Throws Error where
/// gnuplot is missing, Failure where a file cannot be written.
void write_report_folder(std::span<const ReportedRun> runs, const std::filesystem::path& out);

}  // namespace coppice
