// What a run was: enough to repeat it, nothing that names a place on one machine.
//
//   folder.write_whole("manifest.json", make_manifest(...).dump(2));
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/bench_config.h"
#include "experiments/summary.h"
#include "experiments/workload.h"

namespace coppice {

/// {"cpu": model name, "cores": N, "flags": [those that decide which kernels run]}
nlohmann::ordered_json describe_machine();
/// {"name", "file", "bytes", "sha256"}; reads the file to hash it.
nlohmann::ordered_json describe_model(const LoadedModel& model);

/// `prompts` in the order they are measured. Reads the model files to hash them.
nlohmann::ordered_json make_manifest(const BenchConfig& config, const LoadedModel& target,
                                     const LoadedModel* draft, const Backend& backend,
                                     std::span<const ArmInfo> arms,
                                     std::span<const Prompt* const> prompts);
/// The arms that a manifest lists, the baseline first. Throws Error naming `place`.
std::vector<ArmInfo> arms_of(const nlohmann::ordered_json& manifest, std::string_view place);
/// Throws Error naming the first setting in which the two runs differ, such that their rows must
/// not stand in one table: the config, the model, the machine, the backend, the prompts.
void check_same_run(const nlohmann::ordered_json& earlier, const nlohmann::ordered_json& now,
                    std::string_view place);

}  // namespace coppice
