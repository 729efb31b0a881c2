// See sort.h. Alone in its file: Thrust must not meet the emulator's stand-ins for CUDA's names.
#include "kernels/cuda/host/sort.h"

#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_CPP
#include <thrust/sort.h>
#include <thrust/system/cpp/execution_policy.h>

namespace coppice::cuda::host {

void sort(uint64_t* keys, int count) {
  thrust::sort(thrust::cpp::par, keys, keys + count);
}

}  // namespace coppice::cuda::host
