// Which device this thread has chosen, and whether this build can use it.
//
//   const cudaDeviceProp device = usable_device();
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// The backend's, and in messages.
#if defined(__CUDACC__)
inline constexpr std::string_view kName = "cuda";
#else
inline constexpr std::string_view kName = "cuda_emulated";
#endif

inline constexpr std::string_view kExact = "exact", kFast = "fast";  // its targets

/// 13000 is 13.0.
std::string version_text(int version);

/// The device that this thread has chosen, else the first. Throws Error, one line, where it is none
/// that this build can use, or where there are fewer than `ranks`.
cudaDeviceProp usable_device(int ranks = 1);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
