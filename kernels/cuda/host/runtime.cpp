// See runtime.h.
#include "kernels/cuda/host/runtime.h"

#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

using coppice::cuda::host::fake_device;
using Work = std::vector<std::function<void()>>;

struct CUstream_st {
  bool capturing = false;
  Work captured;
};
struct CUevent_st {};
struct CUgraph_st {
  Work work;
};
struct CUgraphExec_st {
  Work work;
};

namespace {

constexpr size_t kAlignment = 256;
constexpr unsigned char kPoison = 0xff;  // NaN as f16, f32 and bf16, no token as an id

std::unordered_map<void*, size_t>& allocations() {
  thread_local std::unordered_map<void*, size_t> sizes;
  return sizes;
}

/// Counts a call, and says whether this one fails.
cudaError_t counted() {
  auto& device = fake_device();
  return ++device.calls == device.fail_at ? device.fail_with : cudaSuccess;
}

cudaError_t allocate(void** pointer, size_t bytes, bool on_device, unsigned char fill) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  auto& device = fake_device();
  if (on_device && (bytes > device.memory || device.used > device.memory - bytes)) {
    return cudaErrorMemoryAllocation;
  }
  *pointer = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*pointer, fill, bytes);
  if (on_device) {
    device.used += bytes;
    allocations()[*pointer] = bytes;
  }
  return cudaSuccess;
}

/// Does what a stream is asked for, or notes it in the graph being captured.
void perform(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && stream->capturing) {
    stream->captured.push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace

namespace coppice::cuda::host {

FakeDevice& fake_device() {
  thread_local FakeDevice device;
  return device;
}

void enqueue(cudaStream_t stream, std::function<void()> kernel) {
  perform(stream, [kernel = std::move(kernel)] {
    ++fake_device().launches;
    kernel();
  });
}

}  // namespace coppice::cuda::host

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    default:
      return "unknown error";
  }
}

cudaError_t cudaGetLastError() {
  return counted();
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = fake_device().driver_version;
  return counted();
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = fake_device().runtime_version;
  return counted();
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fake_device().devices;
  if (*count == 0) return cudaErrorNoDevice;
  return counted();
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return counted();
}
cudaError_t cudaSetDevice(int device) {
  return device < fake_device().devices ? counted() : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {
      "emulated on the host", fake_device().memory, fake_device().major, fake_device().minor, 4, 1};
  return counted();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = fake_device().memory;
  *free = *total - fake_device().used;
  return counted();
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, true, kPoison);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) {
  return allocate(pointer, bytes, true, kPoison);
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, false, kPoison);
}
cudaError_t cudaFree(void* pointer) {
  const auto found = allocations().find(pointer);
  if (found != allocations().end()) {
    fake_device().used -= found->second;
    allocations().erase(found);
  }
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  perform(stream, [=] {
    if (kind == cudaMemcpyDeviceToHost) fake_device().copied_to_host += bytes;
    std::memmove(to, from, bytes);
  });
  return counted();
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  perform(stream, [=] { std::memset(to, value, bytes); });
  return counted();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr && stream->capturing) return cudaErrorStreamCaptureUnsupported;
  ++fake_device().waits;
  return counted();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return counted();  // streams run at once: what the event stands for has happened
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return counted();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  if (stream == nullptr || stream->capturing) return cudaErrorStreamCaptureUnsupported;
  stream->capturing = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->capturing = false;
  Work work = std::exchange(stream->captured, {});
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *graph = new CUgraph_st{std::move(work)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  ++fake_device().graph_launches;
  for (const auto& work : executable->work) perform(stream, work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
