// See machine_limits.h.
#include "experiments/machine_limits.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "experiments/statistics.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using cpu::ReadPattern;

// Enough for any machine: the best of them is the answer.
constexpr ReadPattern kPatterns[] = {{1, 0},    {2, 0},    {4, 0},    {1, 1024}, {1, 4096},
                                     {2, 2048}, {2, 4096}, {4, 1024}, {4, 2048}, {8, 1024}};
constexpr int64_t kComputeRounds = 1 << 17;  // a few milliseconds

cpu_set_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  return set;
}

std::vector<int> list_of(const cpu_set_t& set) {
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);  // a wish: an unpinned thread is only less steady
}

/// The calling thread's affinity, put back at the end of the scope.
class Affinity {
 public:
  Affinity() : before_(allowed_cores()) {}
  ~Affinity() { sched_setaffinity(0, sizeof(before_), &before_); }
  Affinity(const Affinity&) = delete;
  Affinity& operator=(const Affinity&) = delete;

 private:
  cpu_set_t before_;
};

std::string_view target_of(const BackendOptions& machine) {
  if (!machine.target.empty()) return machine.target;
  for (const BackendEntry& entry : backends()) {
    if (entry.name == machine.name) return entry.targets().front();
  }
  return "";
}

/// Memory of its own, written once: pages never written are all one page of zeros.
Buffer written_memory(const BackendOptions& options, size_t bytes) {
  Buffer memory = make_backend(options)->allocate(bytes);
  std::memset(memory.data.get(), 1, bytes);
  return memory;
}

}  // namespace

MachineLimits::MachineLimits(const BackendOptions& machine, size_t most_bytes)
    : most_bytes_(most_bytes),
      memory_(written_memory(machine, most_bytes)),
      cores_(list_of(allowed_cores())),
      probes_(cpu::machine_probes(target_of(machine))),
      pool_(machine.threads > 0 ? machine.threads : std::max(1, static_cast<int>(cores_.size()))) {}

/// From the moment all threads are ready to the last one's end.
template <class Body>
double MachineLimits::seconds_of(const Body& body) {
  using Clock = std::chrono::steady_clock;
  const Affinity keep;
  Clock::time_point start;
  pool_.run([&](int thread) noexcept {
    if (!cores_.empty()) pin_to(cores_[static_cast<size_t>(thread) % cores_.size()]);
    pool_.barrier();
    if (thread == 0) start = Clock::now();
    body(thread);
  });
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double MachineLimits::read_once(size_t bytes, const ReadPattern& pattern) {
  const auto threads = static_cast<size_t>(pool_.size());
  const size_t part =
      std::max(std::min(bytes, most_bytes_) / threads / cpu::kReadMultiple, size_t{1}) *
      cpu::kReadMultiple;
  std::atomic<uint64_t> sum = 0;  // what is read must be used
  const double seconds = seconds_of([&](int thread) {
    const auto* data = memory_.as<uint8_t>() + static_cast<size_t>(thread) * part;
    sum += probes_.read(data, part, pattern);
  });
  COPPICE_CHECK(sum == uint64_t{0x0101010101010101} * (part * threads / sizeof(uint64_t)));
  return static_cast<double>(part * threads) / seconds;
}

ReadSpeed MachineLimits::read(size_t bytes, int passes) {
  ReadSpeed speed{.bytes = bytes};
  for (const ReadPattern& pattern : kPatterns) {
    std::vector<double> speeds;
    for (int pass = 0; pass < passes; ++pass) speeds.push_back(read_once(bytes, pattern));
    speed.best = std::max(speed.best, *std::max_element(speeds.begin(), speeds.end()));
    const double median = *percentile(speeds, 0.5);
    if (median > speed.median) {
      speed.median = median;
      speed.pattern = pattern;
    }
  }
  return speed;
}

double MachineLimits::multiply_add(int passes) {
  double best = 0.0;
  for (int pass = 0; pass < passes; ++pass) {
    std::atomic<double> sum = 0.0;
    const double seconds = seconds_of([&](int) { sum += probes_.multiply_add(kComputeRounds); });
    best = std::max(best, 2.0 * sum / seconds);
  }
  return best;
}

double MachineLimits::dot(int passes) {
  double best = 0.0;
  for (int pass = 0; pass < passes; ++pass) {
    std::atomic<int64_t> sum = 0;
    const double seconds = seconds_of([&](int) { sum += probes_.dot(kComputeRounds); });
    best = std::max(best, 2.0 * static_cast<double>(sum) / seconds);
  }
  return best;
}

}  // namespace coppice
