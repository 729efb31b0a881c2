// A config inside a manifest: the tables of a TOML file as JSON, and back, so that a run can be
// repeated from its manifest.json.
//
//   manifest["config"] = config_to_json(dump_bench_config(config));
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "experiments/toml_source.h"

namespace coppice {

/// {"bench": {...}, "method": [{...}, ...]}: a table named `method` is always a list.
nlohmann::ordered_json config_to_json(const ConfigTables& tables);
/// The tables under "config" of a manifest. Throws Error naming the file.
ConfigTables read_manifest_config(const std::filesystem::path& path);

}  // namespace coppice
