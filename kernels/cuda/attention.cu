// Attention beside its main kernel (attend.cu): Q, K and V made ready and stored, ranges of keys
// joined, cached K and V moved.
//
//   launch(Attention{...}, most_keys, {.stream = stream, .scratch = scratch});
#include "kernels/base/check.h"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kThreads = 128;
constexpr float kLog2e = 1.44269504f;

__device__ uint16_t* page_at(const KvLayer& kv, int place) {
  return reinterpret_cast<uint16_t*>(kv.base +
                                     static_cast<size_t>(place / kPageSlots) * kv.page_stride);
}
/// Of one key's K, value `d` of head `head`; V's are contiguous from v_offset on.
__device__ size_t k_offset(const KvLayer& kv, int head, int d, int place) {
  return (static_cast<size_t>(head) * kv.head_dim + d) * kPageSlots + place % kPageSlots;
}
__device__ size_t v_offset(const KvLayer& kv, int head, int place) {
  return (static_cast<size_t>(kv.kv_heads + head) * kPageSlots + place % kPageSlots) * kv.head_dim;
}

/// One warp a head of Q, K and V: norm, rotation; Q to `q`, K and V rounded to their slots.
__global__ void __launch_bounds__(kThreads) make_ready(Attention op, float* q) {
  follow_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int head = static_cast<int>(blockIdx.y * (kThreads / kWarp) + threadIdx.x / kWarp);
  const int r = static_cast<int>(blockIdx.x);
  const int dim = op.kv.head_dim, all_heads = op.heads + 2 * op.kv.kv_heads;
  if (head >= all_heads) return;
  const AttentionRow row = op.row[r];
  const float* x = op.qkv + (static_cast<size_t>(r) * all_heads + head) * dim;
  const int place =
      op.pages[row.page_table + row.slot / kPageSlots] * kPageSlots + row.slot % kPageSlots;
  uint16_t* page = page_at(op.kv, place);

  const int value_head = head - op.heads - op.kv.kv_heads;
  if (value_head >= 0) {
    uint16_t* v = page + v_offset(op.kv, value_head, place);
    for (int d = lane; d < dim; d += kWarp) v[d] = float_to_half_bits(x[d]);
    return;
  }
  const bool is_query = head < op.heads;
  const float* norm = is_query ? op.q_norm : op.k_norm;
  float factor = 1.0f;
  if (norm != nullptr) {
    float sum = 0.0f;
    for (int d = lane; d < dim; d += kWarp) sum = fmaf(x[d], x[d], sum);
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    factor = 1.0f / sqrtf(sum / static_cast<float>(dim) + op.norm_eps);
  }
  const float* rotary = op.rotary + static_cast<size_t>(row.position) * dim;
  for (int i = lane; i < dim / 2; i += kWarp) {
    const bool adjacent = op.style == RotaryStyle::adjacent;
    const int first = adjacent ? 2 * i : i, second = adjacent ? 2 * i + 1 : i + dim / 2;
    float a = x[first], b = x[second];
    if (norm != nullptr) {
      a = a * factor * norm[first];
      b = b * factor * norm[second];
    }
    const float cosine = rotary[2 * i], sine = rotary[2 * i + 1];
    const float turned_a = a * cosine - b * sine, turned_b = a * sine + b * cosine;
    if (is_query) {
      float* to = q + (static_cast<size_t>(r) * op.heads + head) * dim;
      const float scale = op.scale * kLog2e;
      to[first] = turned_a * scale;
      to[second] = turned_b * scale;
    } else {
      page[k_offset(op.kv, head - op.heads, first, place)] = float_to_half_bits(turned_a);
      page[k_offset(op.kv, head - op.heads, second, place)] = float_to_half_bits(turned_b);
    }
  }
}

/// One block a row and head: its ranges, in order.
__global__ void __launch_bounds__(kThreads) join_ranges(AttendArgs args) {
  follow_previous();
  const int head = static_cast<int>(blockIdx.y), dim = args.kv.head_dim;
  const AttentionRow row = args.row[blockIdx.x];
  const int first = first_key(row, args.window) / kRangePositions;
  const int last = row.position / kRangePositions;
  const size_t all_heads = static_cast<size_t>(args.rows) * args.heads;
  const size_t at = static_cast<size_t>(blockIdx.x) * args.heads + head;
  float maximum = -INFINITY;
  for (int range = first; range <= last; ++range) {
    maximum = fmaxf(maximum, args.part_sums[range * all_heads + at].maximum);
  }
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    float values = 0.0f, total = 0.0f;
    for (int range = first; range <= last; ++range) {
      const RangeSum part = args.part_sums[range * all_heads + at];
      // A range may hold nothing but a key that is no number: its total then is none either.
      const float weight = part.maximum == -INFINITY ? 0.0f : exp2f(part.maximum - maximum);
      values = fmaf(args.part_values[(range * all_heads + at) * dim + d], weight, values);
      total = fmaf(part.total, weight, total);
    }
    args.out[at * dim + d] = quotient(values, total);
  }
}

/// A thread has one value of K and of V, and makes its moves in the order given.
__global__ void __launch_bounds__(kThreads) move(MoveKv op) {
  follow_previous();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const KvLayer& kv = op.kv;
  if (i >= kv.kv_heads * kv.head_dim) return;
  const int head = i / kv.head_dim, d = i % kv.head_dim;
  for (int m = 0; m < op.count; ++m) {
    const int from = op.from[m], to = op.to[m];
    page_at(kv, to)[k_offset(kv, head, d, to)] = page_at(kv, from)[k_offset(kv, head, d, from)];
    page_at(kv, to)[v_offset(kv, head, to) + d] = page_at(kv, from)[v_offset(kv, head, from) + d];
  }
}

int ranges_of(int most_keys) {
  return (most_keys + kRangePositions - 1) / kRangePositions;
}

/// Scratch: the queries, then parts of ranges where there are several.
struct ScratchPlan {
  size_t values = 0, sums = 0, end = 0;  // offsets in bytes

  ScratchPlan(const Attention& op, int ranges) {
    const size_t heads = static_cast<size_t>(op.rows) * op.heads;
    const size_t bytes = heads * op.kv.head_dim * sizeof(float);
    values = end = (bytes + 255) / 256 * 256;
    if (ranges == 1) return;
    sums = values + ranges * bytes;
    end = sums + ranges * heads * sizeof(RangeSum);
  }
};

}  // namespace

size_t scratch_bytes(const Attention& op, int most_keys) {
  return ScratchPlan(op, ranges_of(most_keys)).end;
}

void launch(const Attention& op, int most_keys, const LaunchSite& at) {
  if (op.rows == 0) return;
  COPPICE_CHECK(op.heads > 0 && op.kv.kv_heads > 0 && op.heads % op.kv.kv_heads == 0);
  COPPICE_CHECK(op.kv.head_dim > 0 && op.kv.head_dim % 2 == 0 && op.window >= 0);
  COPPICE_CHECK(op.kv.base != nullptr && op.row != nullptr && op.pages != nullptr);
  COPPICE_CHECK(op.qkv != nullptr && op.rotary != nullptr && op.out != nullptr && most_keys > 0);
  const int ranges = ranges_of(most_keys);
  const ScratchPlan plan(op, ranges);
  auto* q = reinterpret_cast<float*>(at.scratch);
  const int all_heads = op.heads + 2 * op.kv.kv_heads;
  constexpr int kHeads = kThreads / kWarp;
  launch<make_ready>({.name = "make_ready",
                      .grid = extent(op.rows, (all_heads + kHeads - 1) / kHeads),
                      .block = extent(kThreads),
                      .stream = at.stream},
                     op, q);

  AttendArgs args{.q = q, .kv = op.kv, .row = op.row, .tail_slots = op.tail_slots};
  args.pages = op.pages;
  args.rows = op.rows;
  args.heads = op.heads;
  args.window = op.window;
  args.ranges = ranges;
  args.part_values = reinterpret_cast<float*>(at.scratch + plan.values);
  args.part_sums = reinterpret_cast<RangeSum*>(at.scratch + plan.sums);
  args.out = op.out;
  launch_attend(args, at.stream);
  if (ranges == 1) return;
  launch<join_ranges>({.name = "join_ranges",
                       .grid = extent(op.rows, op.heads),
                       .block = extent(kThreads),
                       .stream = at.stream},
                      args);
}

void launch(const MoveKv& op, const LaunchSite& at) {
  if (op.count == 0) return;
  COPPICE_CHECK(op.from != nullptr && op.to != nullptr && op.kv.base != nullptr);
  const int values = op.kv.kv_heads * op.kv.head_dim;
  launch<move>({.name = "move",
                .grid = extent((values + kThreads - 1) / kThreads),
                .block = extent(kThreads),
                .stream = at.stream},
               op);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
