// What a finished or interrupted run left in its folder: its rows and its manifest.
//
//   const auto manifest = read_manifest("results/quickstart");
//   const auto rows = read_rows("results/quickstart");
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "experiments/prompt_row.h"

namespace coppice {

/// Rows of prompts.jsonl in the order of measurement; none when the file is absent. A last line
/// without an end was cut off and is left out. Throws Error naming the line that cannot be read.
std::vector<PromptRow> read_rows(const std::filesystem::path& run);
/// Prompts that every one of `arms` arms has answered.
std::set<std::string> complete_prompts(std::span<const PromptRow> rows, size_t arms);
/// How far the baseline's time a token moved through a run, rows in the order of measurement: see
/// drift_of(). Empty for fewer than nine baseline rows.
std::optional<double> baseline_drift(std::span<const PromptRow> rows);
/// Throws Error when the folder holds no manifest.json, or one that is none.
nlohmann::ordered_json read_manifest(const std::filesystem::path& run);

}  // namespace coppice
