// Attention over KV pages and token trees: decode, tree verification and prefill by one kernel.
// Source: Dao 2022. Products run on tensor cores: Q and the weights as the sum of two f16 numbers
// each, K and V as they are stored (attend_tile.cuh). How the work is cut: attention.cuh.
//
//   launch_attend(args, stream);
#include "kernels/cuda/attend_tile.cuh"
#include "kernels/cuda/launch.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

template <int kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, 2) attend(AttendArgs args) {
  using Size = Sizes<kHeadDim>;
  COPPICE_SHARED(AttentionRow, rows, kQueries);
  COPPICE_SHARED(uint4, q, Size::kSteps * 2 * kWarp);
  COPPICE_SHARED(int, all_places, kAttentionWarps* kQueries* kWarp);
  COPPICE_SHARED(float, maxima, kAttentionWarps* kQueries);
  COPPICE_SHARED(float, totals, kAttentionWarps* kQueries);
  COPPICE_SHARED(float, joined, kQueries* Size::kValues);

  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int g = lane / 4, t = lane % 4;
  const int range = static_cast<int>(blockIdx.z), range_begin = range * kRangePositions;
  let_next_start();
  const Tile tile = make_tile(args, rows, Size::kParts);  // of tables: no kernel writes them
  wait_for_previous();
  if (range_begin > tile.most_position || range_begin + kRangePositions <= tile.least_first) return;
  const int part = static_cast<int>(blockIdx.y) % Size::kParts;
  const int warp_begin = range_begin + warp * kWarpBlocks * kPageSlots;
  const Shared<int> places = all_places + warp * kQueries * kWarp;

  load_queries<Size::kSteps>(args, tile, q);
  __syncthreads();

  float scores[kWarpBlocks][4][4];
  float most[2] = {-INFINITY, -INFINITY};  // of queries g and g + 8
  COPPICE_UNROLL
  for (int block = 0; block < kWarpBlocks; ++block) {
    COPPICE_UNROLL
    for (int i = 0; i < 16; ++i) scores[block][i / 4][i % 4] = -INFINITY;
    each_class(args, tile, rows, places, warp_begin + block * kPageSlots,
               [&](const Class& keys) { score<Size::kSteps>(args, tile, q, keys, scores[block]); });
    COPPICE_UNROLL
    for (int i = 0; i < 16; ++i) {
      most[i % 4 / 2] = fmaxf(most[i % 4 / 2], scores[block][i / 4][i % 4]);
    }
  }
  COPPICE_UNROLL
  for (int upper = 0; upper < 2; ++upper) {
    for (int step = 1; step < 4; step *= 2) {
      most[upper] = fmaxf(most[upper], __shfl_xor_sync(kAllLanes, most[upper], step));
    }
    if (t == 0) maxima[warp * kQueries + g + 8 * upper] = most[upper];
  }
  __syncthreads();

  float total[2] = {};
  COPPICE_UNROLL
  for (int upper = 0; upper < 2; ++upper) {
    for (int w = 0; w < kAttentionWarps; ++w) {
      most[upper] = fmaxf(most[upper], maxima[w * kQueries + g + 8 * upper]);
    }
  }
  COPPICE_UNROLL
  for (int i = 0; i < kWarpBlocks * 16; ++i) {
    float& weight = scores[i / 16][i % 16 / 4][i % 4];
    // A score that is no number makes a weight that is none.
    weight = weight == -INFINITY ? 0.0f : exp2f(weight - most[i % 4 / 2]);
    total[i % 4 / 2] += weight;
  }
  COPPICE_UNROLL
  for (int upper = 0; upper < 2; ++upper) {
    for (int step = 1; step < 4; step *= 2) {
      total[upper] += __shfl_xor_sync(kAllLanes, total[upper], step);
    }
    if (t == 0) totals[warp * kQueries + g + 8 * upper] = total[upper];
  }

  float values[Size::kValues / 8][4] = {};
  COPPICE_UNROLL
  for (int block = 0; block < kWarpBlocks; ++block) {
    each_class(args, tile, rows, places, warp_begin + block * kPageSlots, [&](const Class& keys) {
      add_values<kHeadDim>(args, tile, part, keys, scores[block], values);
    });
  }
  for (int w = 0; w < kAttentionWarps; ++w) {
    if (w > 0) __syncthreads();
    if (warp != w) continue;
    COPPICE_UNROLL
    for (int i = 0; i < Size::kValues / 8; ++i) {
      COPPICE_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int query = g + c / 2 * 8;
        const int chunk = i / Size::kVector;
        const int value = (chunk * 8 + 2 * t + c % 2) * Size::kVector + i % Size::kVector;
        const int at = query * Size::kValues + value;
        if (w == 0) {
          joined[at] = values[i][c];
        } else {
          joined[at] += values[i][c];
        }
      }
    }
  }
  __syncthreads();

  for (int i = thread; i < tile.queries * Size::kValues; i += kAttentionThreads) {
    const int query = i / Size::kValues, value = i % Size::kValues;
    const int flat = tile.first_query + query;
    const size_t head = static_cast<size_t>(flat / tile.group) * args.heads +
                        tile.kv_head * tile.group + flat % tile.group;
    const float sum = joined[i] * (1.0f / kWeightUnit);
    float weights = totals[query];
    for (int w = 1; w < kAttentionWarps; ++w) weights += totals[w * kQueries + query];
    const size_t at = head * kHeadDim + part * Size::kValues + value;
    if (args.ranges == 1) {
      args.out[at] = quotient(sum, weights);
      continue;
    }
    const size_t all_heads = static_cast<size_t>(args.rows) * args.heads;
    args.part_values[range * all_heads * kHeadDim + at] = sum;
    if (value != 0 || part != 0) continue;
    float maximum = maxima[query];
    for (int w = 1; w < kAttentionWarps; ++w)
      maximum = fmaxf(maximum, maxima[w * kQueries + query]);
    args.part_sums[range * all_heads + head] = {maximum, weights};
  }
}

template <int kHeadDim>
void launch_of_size(const AttendArgs& args, Stream stream) {
  const int queries = args.rows * (args.heads / args.kv.kv_heads);
  launch<attend<kHeadDim>>({.name = "attend",
                            .grid = extent((queries + kQueries - 1) / kQueries,
                                           args.kv.kv_heads * Sizes<kHeadDim>::kParts, args.ranges),
                            .block = extent(kAttentionThreads),
                            .stream = stream},
                           args);
}

}  // namespace

void launch_attend(const AttendArgs& args, Stream stream) {
  switch (args.kv.head_dim) {
    case 16:
      return launch_of_size<16>(args, stream);
    case 32:
      return launch_of_size<32>(args, stream);
    case 64:
      return launch_of_size<64>(args, stream);
    case 80:
      return launch_of_size<80>(args, stream);
    case 96:
      return launch_of_size<96>(args, stream);
    case 128:
      return launch_of_size<128>(args, stream);
    case 256:
      return launch_of_size<256>(args, stream);
    default:
      refuse_head_size(args.kv.head_dim);
  }
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
