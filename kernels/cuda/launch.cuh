// The one way to start a kernel: <<<>>> and an error check under nvcc, the emulator otherwise.
//
//   launch<reverse>({.name = "reverse", .grid = extent(1), .block = extent(256), .stream = stream},
//                   x, count, out);
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
  kKernel<<<shape.grid, shape.block, shape.shared_bytes, shape.stream>>>(args...);
  check(cudaGetLastError(), shape.name);
}

#else

template <auto kKernel, class... Args>
void launch(const LaunchShape& shape, const Args&... args) {
  host::enqueue(shape.stream, [shape, args...] {
    emulator::run(shape.grid, shape.block, shape.shared_bytes, shape.name,
                  [&] { kKernel(args...); });
  });
}

#endif

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
