// Sorting on the device: CUB's radix sort under nvcc, Thrust's C++ host backend in emulation.
//
//   const uint64_t* sorted = sort_keys({keys, other, count, 50, temporary}, stream);
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct KeysToSort {
  uint64_t* keys = nullptr;   // (count)
  uint64_t* other = nullptr;  // (count) whose contents do not matter
  int count = 0;
  int bits = 64;                   // the lowest of a key; those above are zeros
  std::byte* temporary = nullptr;  // sort_bytes(count)
};

size_t sort_bytes(int count);
/// Smallest first. Returns whichever of `keys` and `other` holds them, the same for a count.
/// Launches alone, so that it can be captured into a graph.
const uint64_t* sort_keys(const KeysToSort& job, Stream stream);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
