// See runtime.h.
#include "kernels/cuda/runtime.h"

#include <utility>

#include "kernels/base/error.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

/// What the user can do about a status; "" where there is nothing better than the runtime's text.
const char* remedy(cudaError_t status) {
  switch (status) {
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "; use --backend cpu, or a machine with an NVIDIA GPU and its driver";
    case cudaErrorInsufficientDriver:
      return "; update the NVIDIA driver, or build with an older CUDA toolkit";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return "; build with this device's architecture in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorMemoryAllocation:
      return "; use a smaller model, a shorter context or fewer sequences";
    default:
      return "";
  }
}

}  // namespace

void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw Failure("cuda: {}: {}{}", doing, cudaGetErrorString(status), remedy(status));
}

OwnStream::OwnStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}
OwnStream::~OwnStream() {
  static_cast<void>(cudaStreamDestroy(stream_));
}

DeviceBlock::DeviceBlock(size_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    throw Failure("cuda: no room for {:.1f} MB of {}, {:.1f} of {:.1f} MB are free{}", bytes / 1e6,
                  what, free / 1e6, total / 1e6, remedy(status));
  }
  check(status, "taking memory");
  data_ = static_cast<std::byte*>(data);
}

DeviceBlock::DeviceBlock(DeviceBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBlock& DeviceBlock::operator=(DeviceBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBlock::~DeviceBlock() {
  // A failure here has been, or will be, reported by a call that can throw.
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

void DeviceBlock::write(size_t offset, const void* from, size_t bytes) {
  if (bytes == 0) return;
  COPPICE_CHECK(offset <= bytes_ && bytes <= bytes_ - offset);
  // From pageable memory the call returns once `from` has been read.
  check(cudaMemcpyAsync(data_ + offset, from, bytes, cudaMemcpyHostToDevice, nullptr),
        "copying weights");
  check(cudaStreamSynchronize(nullptr), "copying weights");
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
