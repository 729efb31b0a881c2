// What steps cost on a backend whose machine has no probes of ours: t(n) and c(n) beside the speed
// at which the backend copies memory. `coppice roofline --backend cuda`.
//
//   const auto record = measure_backend_steps({.machine = {.name = "cuda"}, .model = path});
//   fmt::print("{}", backend_steps_text(record));
#pragma once

#include "experiments/roofline.h"

namespace coppice {

/// Of RooflineRequest: the backend, a model, contexts, rows and rounds. Throws Error without a
/// model, and as make_backend does.
nlohmann::ordered_json measure_backend_steps(const RooflineRequest& request);
/// The record as a table to read.
std::string backend_steps_text(const nlohmann::ordered_json& record);

}  // namespace coppice
