// The table of a sweep: a line for each method of each finished cell, from the cells' summaries.
//
//   std::string text = sweep_table("results/draft_length").markdown();
#pragma once

#include <filesystem>
#include <string>

#include "experiments/table.h"

namespace coppice {

/// `sweep` is the folder of a sweep, and sweep.json in it is what is read. Throws Error when it
/// holds none.
Table sweep_table(const std::filesystem::path& sweep);
/// Markdown: the table with its title, its setting, and the cells that failed or whose baseline
/// moved.
std::string sweep_report(const std::filesystem::path& sweep);
std::string sweep_name(const std::filesystem::path& sweep);

}  // namespace coppice
