// The k largest of each row, in order: larger first, equal values by lower index, NaN last. Row,
// value and index make one 64-bit key, so that no two are equal; the smallest key comes first. A
// row is cut into chunks: its k largest values lie in the k chunks whose own largest are largest.
// So chunks are sorted by their best keys, then the keys of the k best chunks (sort.h).
//
//   launch(TopK{...}, {.stream = stream, .scratch = scratch});
#include <bit>

#include "kernels/base/check.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sort.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kChunk = 128;  // values
constexpr int kValueBits = 32;

/// How a row is cut, and where its keys lie in scratch.
struct Selection {
  int chunks = 0;      // of a row
  int chosen = 0;      // of these, whose keys are sorted
  int index_bits = 0;  // of a key, the lowest; then the value's, then the row's
  int bits = 0;
  size_t best = 0, candidates = 0, temporary = 0, end = 0;  // offsets in bytes

  explicit Selection(const TopK& op) {
    chunks = (op.cols + kChunk - 1) / kChunk;
    chosen = op.k < chunks ? op.k : chunks;
    index_bits = std::bit_width(static_cast<uint32_t>(op.cols - 1));
    bits = index_bits + kValueBits + std::bit_width(static_cast<uint32_t>(op.rows - 1));
    const auto take = [&](size_t bytes) {
      const size_t begin = end;
      end += (bytes + 255) / 256 * 256;
      return begin;
    };
    best = take(2 * best_keys(op) * sizeof(uint64_t));
    candidates = take(2 * candidate_keys(op) * sizeof(uint64_t));
    const size_t most = best_keys(op) > candidate_keys(op) ? best_keys(op) : candidate_keys(op);
    temporary = take(sort_bytes(static_cast<int>(most)));
  }
  /// Where all chunks are chosen there is nothing to choose.
  size_t best_keys(const TopK& op) const {
    return chosen < chunks ? static_cast<size_t>(op.rows) * chunks : 0;
  }
  size_t candidate_keys(const TopK& op) const {
    return static_cast<size_t>(op.rows) * chosen * kChunk;
  }
};

__device__ uint64_t row_bits(int row, int index_bits) {
  return static_cast<uint64_t>(row) << (kValueBits + index_bits);
}

__device__ uint64_t key_of(int row, float x, int index, int index_bits) {
  uint32_t bits = __float_as_uint(x);
  if (bits == 0x80000000u) bits = 0;  // -0 equals 0
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t ordered = nan ? 0 : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return row_bits(row, index_bits) | static_cast<uint64_t>(~ordered) << index_bits |
         static_cast<uint64_t>(index);
}

/// One warp a chunk: its best key to best[row][chunk].
__global__ void __launch_bounds__(kThreads)
    best_of_chunks(TopK op, int chunks, int index_bits, uint64_t* best) {
  follow_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp, row = static_cast<int>(blockIdx.y);
  const int chunk = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / kWarp);
  if (chunk >= chunks) return;
  const float* x = op.x + static_cast<size_t>(row) * op.x_stride;
  uint64_t own = ~uint64_t{0};
  for (int i = chunk * kChunk + lane; i < (chunk + 1) * kChunk && i < op.cols; i += kWarp) {
    const uint64_t key = key_of(row, x[i], i, index_bits);
    own = key < own ? key : own;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, own, step);
    own = other < own ? other : own;
  }
  if (lane == 0) best[static_cast<size_t>(row) * chunks + chunk] = own;
}

/// One block a chosen chunk: all its keys. `best` null: every chunk is chosen.
__global__ void __launch_bounds__(kChunk)
    gather_keys(TopK op, int chunks, int index_bits, const uint64_t* best, uint64_t* candidates) {
  follow_previous();
  const int row = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  int chunk = static_cast<int>(blockIdx.x);
  if (best != nullptr) {
    const uint64_t key = best[static_cast<size_t>(row) * chunks + chunk];
    chunk = static_cast<int>(key & ((uint64_t{1} << index_bits) - 1)) / kChunk;
  }
  const int index = chunk * kChunk + thread;
  const float* x = op.x + static_cast<size_t>(row) * op.x_stride;
  const uint64_t behind_all = row_bits(row + 1, index_bits) - 1;
  const size_t at = (static_cast<size_t>(row) * gridDim.x + blockIdx.x) * kChunk + thread;
  candidates[at] = index < op.cols ? key_of(row, x[index], index, index_bits) : behind_all;
}

/// One block a row: the first k of its `count` sorted keys.
__global__ void __launch_bounds__(kChunk)
    take_first(TopK op, int count, int index_bits, const uint64_t* sorted) {
  follow_previous();
  const size_t row = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < op.k; i += kChunk) {
    const uint64_t key = sorted[row * count + i];
    const auto index = static_cast<int32_t>(key & ((uint64_t{1} << index_bits) - 1));
    op.index[row * op.k + i] = index;
    op.value[row * op.k + i] = op.x[row * op.x_stride + index];
  }
}

}  // namespace

size_t scratch_bytes(const TopK& op) {
  return op.rows == 0 ? 0 : Selection(op).end;
}

void launch(const TopK& op, const LaunchSite& at) {
  COPPICE_CHECK(op.k >= 1 && op.k <= op.cols);
  if (op.rows == 0) return;
  COPPICE_CHECK(op.x != nullptr && op.index != nullptr && op.value != nullptr);
  COPPICE_CHECK(op.rows == 1 || op.x_stride >= op.cols);
  const Selection plan(op);
  COPPICE_CHECK(plan.bits <= 64);
  const auto sorted = [&](size_t offset, size_t count) {
    auto* keys = reinterpret_cast<uint64_t*>(at.scratch + offset);
    return sort_keys(
        {keys, keys + count, static_cast<int>(count), plan.bits, at.scratch + plan.temporary},
        at.stream);
  };
  const uint64_t* best = nullptr;
  if (plan.chosen < plan.chunks) {
    launch<best_of_chunks>({.name = "best_of_chunks",
                            .grid = extent((plan.chunks + kWarps - 1) / kWarps, op.rows),
                            .block = extent(kThreads),
                            .stream = at.stream},
                           op, plan.chunks, plan.index_bits,
                           reinterpret_cast<uint64_t*>(at.scratch + plan.best));
    best = sorted(plan.best, plan.best_keys(op));
  }
  launch<gather_keys>({.name = "gather_keys",
                       .grid = extent(plan.chosen, op.rows),
                       .block = extent(kChunk),
                       .stream = at.stream},
                      op, plan.chunks, plan.index_bits, best,
                      reinterpret_cast<uint64_t*>(at.scratch + plan.candidates));
  const uint64_t* first = sorted(plan.candidates, plan.candidate_keys(op));
  launch<take_first>(
      {.name = "take_first", .grid = extent(op.rows), .block = extent(kChunk), .stream = at.stream},
      op, plan.chosen * kChunk, plan.index_bits, first);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
