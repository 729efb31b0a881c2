// Any bytes as a config: it is read, or refused with one line. What was read must read back the
// same from its own dump.
//   build/debug/fuzz/config_fuzz -max_total_time=60 NEW_FOLDER configs configs/methods
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "experiments/bench_config.h"
#include "experiments/config_json.h"

namespace {

using namespace coppice;

/// An existing folder without files, so that `use` finds nothing outside the input.
BenchConfig read(ConfigTables tables) {
  return make_bench_config(std::move(tables), {}, "f", "/proc/self/task");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ConfigTables dumped;
  try {
    dumped = dump_bench_config(read(parse_toml(text, "f.toml")));
  } catch (const Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
    return 0;
  }
  const auto again = dump_bench_config(read(dumped));
  if (config_to_json(again) != config_to_json(dumped)) std::abort();
  return 0;
}
