// The machine's limits and a model's steps beside them: how much of what memory and arithmetic
// allow a step reaches, and what n rows cost compared with one, c(n) = t(n) / t(1).
//
//   nlohmann::ordered_json record = measure_roofline({.model = "smollm2.gguf"});
//   fmt::print("{}", roofline_text(record));
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace coppice {

struct RooflineRequest {
  BackendOptions machine;       // of the cpu backend
  std::filesystem::path model;  // empty: the machine alone
  std::vector<int> contexts = {64, 512, 4096};
  std::vector<int> rows = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  std::vector<int> read_mib = {16, 256, 1024};  // buffers read, beside one of the model's size
  int rounds = 9;  // every figure is measured once a round, all of them in turn
};

/// Measures; seconds to minutes. Contexts that the model is too short for are left out and listed.
/// Throws Error for an unknown target or a file that is no model.
nlohmann::ordered_json measure_roofline(const RooflineRequest& request);
/// The record as a table to read.
std::string roofline_text(const nlohmann::ordered_json& record);

}  // namespace coppice
