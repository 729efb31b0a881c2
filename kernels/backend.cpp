// The list of backends, the choice by name, and host memory for their buffers.
//
//   auto backend = make_backend({.name = "reference", .threads = 2});
#include "kernels/backend.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "kernels/reference/reference.h"

namespace coppice {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kMostThreads = 1024;

std::vector<std::string_view> names() {
  std::vector<std::string_view> out;
  for (const BackendEntry& entry : backends()) out.push_back(entry.name);
  return out;
}

/// Cores this process may run on.
int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace

Buffer allocate_host(size_t bytes) {
  const size_t rounded = std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) throw Failure("memory: no room for {} bytes", bytes);
  std::memset(data, 0, rounded);
  return {std::shared_ptr<std::byte>(static_cast<std::byte*>(data), &std::free), bytes};
}

std::span<const BackendEntry> backends() {
  static const BackendEntry entries[] = {
    cpu_entry(),
    reference_entry(),
#if defined(COPPICE_WITH_CUDA)
    cuda_entry(),
#endif
  };
  return entries;
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  const auto all = backends();
  const auto entry = std::find_if(all.begin(), all.end(),
                                  [&](const BackendEntry& e) { return e.name == options.name; });
  if (entry == all.end()) {
    throw Error("backend '{}': not in this build; choose one of: {}{}", options.name,
                fmt::join(names(), ", "),
                options.name == "cuda" ? "; cuda is built where an nvcc is found: install the CUDA "
                                         "toolkit, or name it by CUDACXX, and configure anew"
                                       : "");
  }
  if (options.ranks > 1 && !entry->several_devices) {
    throw Error("--ranks {}: backend {} runs on one device; add --backend cuda", options.ranks,
                options.name);
  }
  const auto targets = entry->targets();
  if (targets.empty()) return entry->make(options);  // which says why there are none
  if (!options.target.empty() &&
      std::find(targets.begin(), targets.end(), options.target) == targets.end()) {
    throw Error("backend '{}': no dispatch target '{}' on this machine; choose one of: {}",
                options.name, options.target, fmt::join(targets, ", "));
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    throw Error("threads = {}: give 1 to {}, or 0 for one per core", options.threads, kMostThreads);
  }
  BackendOptions resolved = options;
  if (resolved.threads == 0) resolved.threads = usable_cores();
  if (resolved.target.empty()) resolved.target = targets.front();
  return entry->make(resolved);
}

}  // namespace coppice
