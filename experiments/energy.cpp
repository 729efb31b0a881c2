// See energy.h.
#include "experiments/energy.h"

#include <fstream>
#include <optional>
#include <string>

namespace coppice {
namespace {

namespace fs = std::filesystem;

std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

}  // namespace

EnergyMeter::EnergyMeter(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    // intel-rapl:0 is a package; intel-rapl:0:1 is a part of it, and psys holds packages.
    std::ifstream in(entry.path() / "name");
    std::string name;
    if (!(in >> name) || !name.starts_with("package")) continue;
    const auto now = read_number(entry.path() / "energy_uj");  // root's alone on many machines
    const auto most = read_number(entry.path() / "max_energy_range_uj");
    if (now && most) packages_.push_back({entry.path() / "energy_uj", *most, *now});
  }
}

double EnergyMeter::joules() {
  for (Package& package : packages_) {
    const auto now = read_number(package.counter);
    if (!now) continue;
    const uint64_t used =
        *now >= package.last ? *now - package.last : *now + (package.wraps_at - package.last);
    joules_ += static_cast<double>(used) / 1e6;
    package.last = *now;
  }
  return joules_;
}

}  // namespace coppice
