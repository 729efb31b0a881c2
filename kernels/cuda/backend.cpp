// The CUDA backend's entry in the list of kernels/backend.h.
//
//   make_backend({.name = "cuda", .target = "exact"})
#include "kernels/base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/usable_device.h"

namespace coppice {
namespace cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

/// Nothing where no device can be used: `make` then says why.
std::vector<std::string_view> usable_targets() {
  try {
    usable_device();
    return {kExact, kFast};
  } catch (const std::runtime_error&) {
    return {};
  }
}

std::unique_ptr<Backend> make(const BackendOptions& options) {
  const bool exact = options.target != kFast;
  if (options.ranks == 1) return std::make_unique<CudaBackend>(exact);
  usable_device(options.ranks);
  return make_group(exact, nccl_communicators(options.ranks));
}

BackendEntry entry() {
  return {.name = kName,
          .summary = "NVIDIA GPUs: weights stay quantised, a step is one graph",
          .targets = usable_targets,
          .make = make,
          .several_devices = true};
}

}  // namespace
}  // namespace COPPICE_CUDA_BUILD
}  // namespace cuda

#if defined(__CUDACC__)
BackendEntry cuda_entry() {
  return cuda::entry();
}
#else
BackendEntry emulated_cuda_entry() {
  return cuda::entry();
}
#endif

}  // namespace coppice
