// See sort.h.
#include "kernels/cuda/sort.h"

#if defined(__CUDACC__)
#include <cub/device/device_radix_sort.cuh>
#else
#include "kernels/cuda/host/sort.h"
#endif

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

#if defined(__CUDACC__)

namespace {
constexpr int kKeyBits = 64;
}  // namespace

size_t sort_bytes(int count) {
  size_t bytes = 0;
  cub::DoubleBuffer<uint64_t> keys(nullptr, nullptr);
  check(cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, count, 0, kKeyBits),
        "asking for a sort's memory");
  return bytes;
}

const uint64_t* sort_keys(const KeysToSort& job, Stream stream) {
  size_t bytes = sort_bytes(job.count);
  cub::DoubleBuffer<uint64_t> keys(job.keys, job.other);
  check(cub::DeviceRadixSort::SortKeys(job.temporary, bytes, keys, job.count, 0, job.bits, stream),
        "sorting");
  return keys.Current();
}

#else

size_t sort_bytes(int) {
  return 0;
}

const uint64_t* sort_keys(const KeysToSort& job, Stream stream) {
  host::enqueue(stream, [job] { host::sort(job.keys, job.count); });
  return job.keys;
}

#endif

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
