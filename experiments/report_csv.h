// A report's figures for other programs: comma-separated, one figure a cell, full precision, empty
// where there was nothing to compute it from (RFC 4180).
//
//   for (const CsvFile& file : report_csv(runs)) folder.write_whole(file.name, file.text);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/reported_run.h"

namespace coppice {

struct CsvFile {
  std::string name;  // "methods.csv"
  std::string text;
};
/// methods.csv, categories.csv, acceptance.csv, and spec_bench.csv where it applies.
std::vector<CsvFile> report_csv(std::span<const ReportedRun> runs);

}  // namespace coppice
