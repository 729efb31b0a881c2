// See usable_device.h.
#include "kernels/cuda/usable_device.h"

#include "kernels/base/error.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kLeastMajor = 8;  // sm_80: bf16 and int8 mma, asynchronous copies

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

cudaDeviceProp usable_device(int ranks) {
  int driver = 0, runtime = 0, count = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  if (driver == 0) {
    throw Error("backend {}: no NVIDIA driver is installed; install one, or use --backend cpu",
                kName);
  }
  if (driver / 1000 < runtime / 1000) {
    throw Error("backend {}: the driver knows CUDA {}, this build needs {}; update the driver",
                kName, version_text(driver), version_text(runtime));
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw Error("backend {}: the driver finds no device; use --backend cpu", kName);
  }
  check(status, "counting devices");
  if (count < ranks) {
    throw Error("backend {}: --ranks {} of {} device{}; give --ranks {}", kName, ranks, count,
                count == 1 ? "" : "s", count);
  }
  int chosen = 0;
  cudaDeviceProp device;
  check(cudaGetDevice(&chosen), "asking which device is chosen");
  check(cudaGetDeviceProperties(&device, chosen), "asking for the device's properties");
  if (device.major < kLeastMajor) {
    throw Error("backend {}: {} has compute capability {}.{}; this needs {}.0 or later", kName,
                device.name, device.major, device.minor, kLeastMajor);
  }
  if (device.managedMemory == 0) {
    throw Error("backend {}: {} has no managed memory; use --backend cpu", kName, device.name);
  }
  return device;
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
