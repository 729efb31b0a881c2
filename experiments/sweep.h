// A sweep: one config with a [sweep] table stands for many, its cells. An axis is a key as `--set`
// takes it, with the values it goes through; short names say what they mean: `method` (a label),
// `model`, `draft`, `temperature`, keys of [bench] and [sampling], else an option of the methods.
//
//   [sweep]
//   draft_length = [1, 2, 4]                      # method.draft_length
//   sampling.temperature = [0, 1]
//   "method.sequoia.budget" = ["auto", "all"]     # texts are read as --set reads them
//   combine = "cross"                             # or "zip": the axes step together
//   exclude = ["draft_length=4 and temperature=1"]
//
//   if (auto sweep = read_sweep("configs/bench/draft_length.toml", {})) run_sweep(...);
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/bench_config.h"

namespace coppice {

struct SweepAxis {
  std::string key;                  // as the config writes it
  std::string path;                 // as --set takes it; a method's label for `bench.methods`
  std::string place;                // "file.toml:12"
  std::vector<std::string> values;  // as --set takes them
};

struct SweepCell {
  std::string hash;                 // of the resolved config: 12 hexadecimal digits
  std::vector<std::string> values;  // one an axis
  BenchConfig config;
};

struct Sweep {
  std::string name;
  std::vector<SweepAxis> axes;
  std::string combine;
  std::vector<SweepCell> cells;  // the last axis turns fastest; no config twice
};

/// Empty when the config has no [sweep] table. `overrides` reach every cell; "sweep.KEY=VALUES"
/// sets an axis. Every cell's config is checked. Throws Error "place: key: what; remedy".
std::optional<Sweep> read_sweep(const std::filesystem::path& path,
                                std::span<const std::string> overrides);
std::optional<Sweep> make_sweep(ConfigTables tables, std::span<const std::string> overrides,
                                std::string_view name, const std::filesystem::path& folder);

/// "draft_length=3, temperature=1"
std::string cell_text(const Sweep& sweep, const SweepCell& cell);

}  // namespace coppice
