// The CUDA backend: weights, K, V and activations stay on the device; a step is one graph launch.
// Target `exact` keeps row invariance for any row count, `fast` uses cuBLAS where it is faster.
//
//   auto backend = make_backend({.name = "cuda", .target = "fast"});
#pragma once

#include "kernels/backend.h"

namespace coppice {

/// Of nvcc's build. It has no usable target where there is no device, and `make` says why.
BackendEntry cuda_entry();
/// The same sources on the host, "cuda_emulated": for tests.
BackendEntry emulated_cuda_entry();

}  // namespace coppice
