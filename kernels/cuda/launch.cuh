// The one way to start a kernel: a launch and an error check under nvcc, the emulator otherwise.
//
//   launch<reverse>({.name = "reverse", .grid = extent(1), .block = extent(256), .stream = stream},
//                   x, count, out);
//
// On an `early` stream a kernel may start while the one before it runs ("programmatic dependent
// launch", CUDA C++ Programming Guide; a graph keeps it): every thread of every kernel calls
// wait_for_previous() before it touches memory that kernels write, and before it ends, so that a
// kernel's end is the end of all before it. The emulator holds kernels to the second.
#pragma once

#include "kernels/cuda/device.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct LaunchShape {
  const char* name = "";    // for messages
  dim3 grid{};              // blocks
  dim3 block{};             // threads
  size_t shared_bytes = 0;  // dynamic shared memory of a block
  Stream stream{};
};

inline dim3 extent(int x, int y = 1, int z = 1) {
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

#if defined(__CUDACC__)

template <auto kKernel, class... Args>
void launch(const LaunchShape& shape, const Args&... args) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &early;
  config.numAttrs = shape.stream.early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kKernel, args...), shape.name);
}

#else

template <auto kKernel, class... Args>
void launch(const LaunchShape& shape, const Args&... args) {
  host::enqueue(shape.stream, [shape, args...] {
    emulator::run(
        shape.grid, shape.block, shape.shared_bytes, shape.name, [&] { kKernel(args...); },
        shape.stream.early);
  });
  check(cudaGetLastError(), shape.name);
}

#endif

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
