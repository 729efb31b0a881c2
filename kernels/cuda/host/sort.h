// Thrust's C++ host backend in the place of its device backend. See kernels/cuda/sort.h.
#pragma once

#include <cstdint>

namespace coppice::cuda::host {

/// Smallest first.
void sort(uint64_t* keys, int count);

}  // namespace coppice::cuda::host
