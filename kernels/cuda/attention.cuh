// How attention is cut, and what its kernels share. A row's keys are taken by position: blocks of
// kPageSlots positions, ranges of eight blocks. A range has one softmax maximum and four partial
// sums, one a warp, added in order; ranges are joined in order. All edges are absolute positions,
// so a row's bits depend on its own keys alone.
//
//   query f of a KV head    row f / group, head f % group of the heads that share the KV head
//   block of threads        16 queries, one KV head, one range; warp w has positions 64w..64w+63
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = 32 * kAttentionWarps;
inline constexpr int kWarpBlocks = 2;  // of kPageSlots positions
inline constexpr int kRangePositions = kAttentionWarps * kWarpBlocks * kPageSlots;
inline constexpr int kQueries = 16;

/// A softmax over one range, for one query: its maximum (base 2) and the sum of its weights.
struct RangeSum {
  float maximum;
  float total;
};

struct AttendArgs {
  const float* q = nullptr;  // (rows, heads, head_dim): normed, rotated, scaled to base 2
  KvLayer kv;
  const AttentionRow* row = nullptr;
  const int32_t* tail_slots = nullptr;
  const int32_t* pages = nullptr;
  int rows = 0;
  int heads = 0;
  int window = 0;
  int ranges = 0;  // of the launch; a row's own may be fewer

  float* part_values = nullptr;   // (ranges, rows, heads, head_dim), where ranges > 1
  RangeSum* part_sums = nullptr;  // (ranges, rows, heads)
  float* out = nullptr;           // (rows, heads, head_dim)
};

__device__ inline int first_key(const AttentionRow& row, int window) {
  return window == 0 || row.position < window ? 0 : row.position - window + 1;
}

/// Page times kPageSlots plus place of the row's key at `position`.
__device__ inline int place_of_key(const AttendArgs& args, const AttentionRow& row, int position) {
  const int slot =
      position < row.prefix ? position : args.tail_slots[row.tail + position - row.prefix];
  return args.pages[row.page_table + slot / kPageSlots] * kPageSlots + slot % kPageSlots;
}

__device__ inline const uint16_t* page_of(const KvLayer& kv, int place) {
  return reinterpret_cast<const uint16_t*>(kv.base + static_cast<size_t>(place / kPageSlots) *
                                                         kv.page_stride);
}

/// The sum of weighted values over the sum of weights. Adding zero makes -0 what a join gives.
__device__ inline float quotient(float values, float total) {
  return (values + 0.0f) / total;
}

/// Runs `attend` for this head size, or refuses it.
void launch_attend(const AttendArgs& args, Stream stream);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
