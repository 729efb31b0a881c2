// The CUDA runtime as this backend uses it, and the one way a call of it is checked. The same
// sources are compiled twice: by nvcc against the toolkit, and by a C++ compiler against
// kernels/cuda/host/, which runs kernels on fibers and the calls below on a fake device.
//
//   check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copying a step's tables");
#pragma once

#include <cstddef>
#include <string>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define COPPICE_CUDA_BUILD on_device
#else
#include "kernels/cuda/host/runtime.h"
#define COPPICE_CUDA_BUILD emulated
#endif

// Both builds may stand in one program: their symbols differ by this namespace.
namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// A stream, and how kernels are launched on it.
struct Stream {
  cudaStream_t handle = nullptr;
  /// A kernel may start before the one before it has ended: launch.cuh.
  bool early = false;

  operator cudaStream_t() const { return handle; }
};

/// Throws Failure, one line with what was being done and what to do about it, unless the status is
/// success: out of device memory, no driver, too old a driver, a device this build has no code for.
void check(cudaError_t status, const char* doing);

/// A stream that waits for no other, destroyed with the object.
class OwnStream {
 public:
  OwnStream();
  OwnStream(const OwnStream&) = delete;
  ~OwnStream();
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Device memory of its own, freed with the object. Not zeroed, aligned to 256 bytes.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  /// Throws Failure when the device has no room; `what` names the use: "weights".
  DeviceBlock(size_t bytes, const char* what);
  DeviceBlock(DeviceBlock&& other) noexcept;
  DeviceBlock& operator=(DeviceBlock&& other) noexcept;
  ~DeviceBlock();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Copies from host memory to `offset`; returns when `from` may be changed.
  void write(size_t offset, const void* from, size_t bytes);

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
