// A fake of the CUDA runtime API, as much of it as this backend calls: devices whose memory is the
// host's, streams that run at once, captured graphs that replay: their branches in a random
// order, so that work which no event orders shows. Its properties can be set, and any call made to
// fail, so that tests reach what a machine with a GPU shows too late.
//
//   fake_device().driver_version = 11080;   // "the driver is too old"
//   fake_device().fail_at = fake_device().calls + 3;
#pragma once

#include <cstddef>
#include <functional>
#include <string>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorUnknown = 999,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
#define CUDART_VERSION 13000
enum cudaMemoryAdvise { cudaMemAdviseSetReadMostly = 1 };
struct cudaMemLocation {
  int type, id;
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaMemAttachGlobal = 1;

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
  int multiProcessorCount;
  int managedMemory;
};

// Handles.
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

const char* cudaGetErrorString(cudaError_t status);
cudaError_t cudaGetLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaMemAdvise(const void* pointer, size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation location);
cudaError_t cudaMallocHost(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace coppice::cuda::host {

/// A device, its faults and what was asked of it.
struct FakeDevice {
  int driver_version = 13000, runtime_version = 13000;
  int devices = 1;  // of the first one: how many there are
  int major = 9, minor = 0;
  size_t memory = size_t{64} << 30;  // cudaMalloc and cudaMallocManaged together
  int calls = 0;                     // so far, of those that can fail
  int fail_at = 0;                   // number of the call that fails, from 1; 0: none
  cudaError_t fail_with = cudaErrorUnknown;

  size_t used = 0;
  int launches = 0;  // kernels, those of graphs included
  int graph_launches = 0;
  int waits = 0;              // cudaStreamSynchronize
  size_t copied_to_host = 0;  // bytes, by cudaMemcpyAsync with that kind
};
FakeDevice& fake_device(int index);  // 0..7
/// The one that this thread has chosen by cudaSetDevice, else the first.
FakeDevice& fake_device();

/// What every launch of a kernel goes through: `kernel`, with its arguments by value, runs at once
/// or becomes part of the graph being captured.
void enqueue(cudaStream_t stream, std::function<void()> kernel);

}  // namespace coppice::cuda::host
