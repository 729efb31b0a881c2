// The k largest of each row, in order: larger first, equal values by lower index, NaN last.
// A value and its index make one 64-bit key, so that no two are equal; the k-th largest key is
// found digit by digit from the top (radix selection), and those not below it are ranked by
// counting.
//
//   launch(TopK{...}, {.stream = stream, .scratch = scratch});
#include "kernels/base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kThreads = 512;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kKeyBits = 64;

/// Larger keys come first.
__device__ uint64_t key_of(float x, int index) {
  uint32_t bits = __float_as_uint(x);
  if (bits == 0x80000000u) bits = 0;  // -0 equals 0
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t ordered = nan ? 0 : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | ~static_cast<uint32_t>(index);
}

/// One block a row. `chosen`: (rows, k).
__global__ void __launch_bounds__(kThreads) top_k(TopK op, uint64_t* chosen) {
  COPPICE_SHARED(int, count, kDigits);
  COPPICE_SHARED(uint64_t, prefix, 1);  // the digits of the k-th key found so far
  COPPICE_SHARED(int, left, 1);         // keys still to be found among those with this prefix
  COPPICE_SHARED(int, done, 1);
  COPPICE_SHARED(int, next, 1);
  const int thread = static_cast<int>(threadIdx.x);
  const float* x = op.x + static_cast<size_t>(blockIdx.x) * op.x_stride;
  chosen += static_cast<size_t>(blockIdx.x) * op.k;
  if (thread == 0) {
    prefix[0] = 0;
    left[0] = op.k;
    done[0] = 0;
    next[0] = 0;
  }
  int shift = kKeyBits;
  bool whole = false;  // all keys with the prefix belong to the k
  while (shift > 0 && !whole) {
    shift -= kDigitBits;
    if (thread < kDigits) count[thread] = 0;
    __syncthreads();
    const uint64_t found = prefix[0];
    for (int i = thread; i < op.cols; i += kThreads) {
      const uint64_t key = key_of(x[i], i);
      const bool same = shift + kDigitBits == kKeyBits || key >> (shift + kDigitBits) == found;
      if (same) atomicAdd(&count[static_cast<int>(key >> shift & (kDigits - 1))], 1);
    }
    __syncthreads();
    if (thread == 0) {
      int digit = kDigits - 1, need = left[0];
      for (int here = count[digit]; here < need; here = count[digit]) {
        need -= here;
        --digit;
      }
      prefix[0] = found << kDigitBits | static_cast<uint64_t>(digit);
      left[0] = need;
      done[0] = need == count[digit] ? 1 : 0;
    }
    __syncthreads();
    whole = done[0] != 0;
  }
  const uint64_t least = prefix[0];
  for (int i = thread; i < op.cols; i += kThreads) {
    const uint64_t key = key_of(x[i], i);
    if (key >> shift >= least) chosen[atomicAdd(&next[0], 1)] = key;
  }
  __syncthreads();
  for (int i = thread; i < op.k; i += kThreads) {
    const uint64_t key = chosen[i];
    int rank = 0;
    for (int j = 0; j < op.k; ++j) rank += chosen[j] > key ? 1 : 0;
    const auto index = static_cast<int32_t>(~static_cast<uint32_t>(key));
    const size_t at = static_cast<size_t>(blockIdx.x) * op.k + rank;
    op.index[at] = index;
    op.value[at] = x[index];
  }
}

}  // namespace

size_t scratch_bytes(const TopK& op) {
  return static_cast<size_t>(op.rows) * op.k * sizeof(uint64_t);
}

void launch(const TopK& op, const LaunchSite& at) {
  COPPICE_CHECK(op.k >= 1 && op.k <= op.cols);
  if (op.rows == 0) return;
  COPPICE_CHECK(op.x != nullptr && op.index != nullptr && op.value != nullptr);
  COPPICE_CHECK(op.rows == 1 || op.x_stride >= op.cols);
  launch<top_k>(
      {.name = "top_k", .grid = extent(op.rows), .block = extent(kThreads), .stream = at.stream},
      op, reinterpret_cast<uint64_t*>(at.scratch));
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
