// See runtime.h.
#include "kernels/cuda/host/runtime.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

using coppice::cuda::host::fake_device;

namespace {

/// Work of a graph, and the nodes before it that it follows.
struct Node {
  std::function<void()> work;
  std::vector<size_t> after;
};
struct Capture {
  std::vector<Node> nodes;
  std::vector<cudaStream_t> streams;  // the one it began on comes first
};
/// A place in a stream that is being captured: what the next work follows.
struct Place {
  std::shared_ptr<Capture> capture;  // null: none is
  std::vector<size_t> after;
};

}  // namespace

struct CUstream_st {
  Place place;
};
struct CUevent_st {
  Place place;
};
struct CUgraph_st {
  std::vector<Node> nodes;
};
struct CUgraphExec_st {
  std::vector<Node> nodes;
};

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kMostDevices = 8;
constexpr unsigned char kPoison = 0xff;  // NaN as f16, f32 and bf16, no token as an id

thread_local int chosen_device = 0;

/// Of all devices. Memory may be freed by another thread than the one that took it.
struct Allocation {
  size_t bytes;
  int device;
};
std::mutex allocations_mutex;
std::unordered_map<void*, Allocation> allocations;  // guarded by it, as is what devices have used

/// Counts a call, and says whether this one fails.
cudaError_t counted() {
  auto& device = fake_device();
  return ++device.calls == device.fail_at ? device.fail_with : cudaSuccess;
}

cudaError_t allocate(void** pointer, size_t bytes, bool on_device, unsigned char fill) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  auto& device = fake_device();
  const std::lock_guard lock(allocations_mutex);
  if (on_device && (bytes > device.memory || device.used > device.memory - bytes)) {
    return cudaErrorMemoryAllocation;
  }
  *pointer = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (*pointer == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*pointer, fill, bytes);
  if (on_device) {
    device.used += bytes;
    allocations[*pointer] = {bytes, chosen_device};
  }
  return cudaSuccess;
}

/// Does what a stream is asked for, or notes it in the graph being captured.
void perform(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr || !stream->place.capture) return work();
  std::vector<Node>& nodes = stream->place.capture->nodes;
  nodes.push_back({std::move(work), std::exchange(stream->place.after, {nodes.size()})});
}

/// Every node after those it follows, else in any order.
template <class Run>
void run_in_some_order(const std::vector<Node>& nodes, const Run& run) {
  thread_local std::minstd_rand random(1);
  std::vector<size_t> left(nodes.size());
  std::vector<std::vector<size_t>> followers(nodes.size());
  std::vector<size_t> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    left[i] = nodes[i].after.size();
    for (const size_t before : nodes[i].after) followers[before].push_back(i);
    if (left[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const size_t next = ready.back();
    ready.pop_back();
    run(nodes[next].work);
    for (const size_t follower : followers[next]) {
      if (--left[follower] == 0) ready.push_back(follower);
    }
  }
}

/// Nodes that nothing follows, and that the stream's end does not follow either.
bool has_loose_ends(const Capture& capture, const std::vector<size_t>& end) {
  std::vector<bool> followed(capture.nodes.size(), false);
  for (const size_t i : end) followed[i] = true;
  for (const Node& node : capture.nodes) {
    for (const size_t before : node.after) followed[before] = true;
  }
  return std::find(followed.begin(), followed.end(), false) != followed.end();
}

}  // namespace

namespace coppice::cuda::host {

FakeDevice& fake_device(int index) {
  static std::array<FakeDevice, kMostDevices> devices;
  return devices.at(static_cast<size_t>(index));
}
FakeDevice& fake_device() {
  return fake_device(chosen_device);
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
  *count = fake_device(0).devices;
  if (*count == 0) return cudaErrorNoDevice;
  return counted();
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return counted();
}
cudaError_t cudaSetDevice(int device) {
  if (device >= fake_device(0).devices) return cudaErrorInvalidDevice;
  chosen_device = device;
  return counted();
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
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return counted();
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return allocate(pointer, bytes, false, kPoison);
}
cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(allocations_mutex);
  const auto found = allocations.find(pointer);
  if (found != allocations.end()) {
    fake_device(found->second.device).used -= found->second.bytes;
    allocations.erase(found);
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
  if (stream != nullptr && stream->place.capture) return cudaErrorStreamCaptureUnsupported;
  ++fake_device().waits;
  return counted();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  Place& own = stream->place;
  const Place& other = event->place;
  if (!own.capture && !other.capture) return cudaSuccess;  // what it stands for has happened
  if (!own.capture) {
    own.capture = other.capture;
    own.capture->streams.push_back(stream);
  }
  if (own.capture != other.capture) return cudaErrorStreamCaptureIsolation;
  for (const size_t node : other.after) {
    if (std::find(own.after.begin(), own.after.end(), node) == own.after.end()) {
      own.after.push_back(node);
    }
  }
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  event->place = stream->place;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  if (stream == nullptr || stream->place.capture) return cudaErrorStreamCaptureUnsupported;
  stream->place.capture = std::make_shared<Capture>();
  stream->place.capture->streams.push_back(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Place end = stream->place;
  if (!end.capture || end.capture->streams.front() != stream) return cudaErrorInvalidValue;
  for (const cudaStream_t each : end.capture->streams) each->place = {};
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  if (has_loose_ends(*end.capture, end.after)) return cudaErrorStreamCaptureUnjoined;
  *graph = new CUgraph_st{std::move(end.capture->nodes)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t status = counted(); status != cudaSuccess) return status;
  ++fake_device().graph_launches;
  run_in_some_order(executable->nodes, [&](const auto& work) { perform(stream, work); });
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
