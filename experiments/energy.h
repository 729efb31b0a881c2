// What the machine says it used: the energy counters of Linux's powercap (Intel RAPL; AMD's are
// there too), whole packages, so that everything that runs counts. Source: Linux,
// Documentation/power/powercap/powercap.rst.
//
//   EnergyMeter meter;
//   double before = meter.joules(); ...; double used = meter.joules() - before;
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace coppice {

class EnergyMeter {
 public:
  /// Looks for packages in `folder`. None that may be read: available() is false.
  explicit EnergyMeter(const std::filesystem::path& folder = "/sys/class/powercap");

  bool available() const { return !packages_.empty(); }
  /// Since the object was made; 0 where nothing is available. To be asked more often than a counter
  /// wraps around (minutes).
  double joules();

 private:
  struct Package {
    std::filesystem::path counter;
    uint64_t wraps_at = 0, last = 0;  // microjoules
  };
  std::vector<Package> packages_;
  double joules_ = 0;
};

}  // namespace coppice
