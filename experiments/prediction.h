// What a machine that is not here would do: t(n), c(n) and each method's speedup, counted from our
// kernels' bytes and operations and from published figures. `coppice roofline --device h200`.
//
//   nlohmann::ordered_json record = predict({.device = "h200", .shapes =
//   {find_shape("llama-3-8b-bf16")}}); fmt::print("{}", prediction_text(record));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/predicted_step.h"

namespace coppice {

struct PredictionRequest {
  std::string device;
  std::vector<ModelShape> shapes;
  std::vector<int> contexts = {64, 512, 4096};
  std::vector<int> rows = {1, 2, 4, 8, 16, 32, 64};
};

/// Marked `predicted`. Throws Error for an unknown device.
nlohmann::ordered_json predict(const PredictionRequest& request);
/// The record as a table to read.
std::string prediction_text(const nlohmann::ordered_json& record);

}  // namespace coppice
