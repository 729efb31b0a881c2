// Matrix products for 1 to 64 rows at a time, row-invariant: what is summed in which order depends
// on the weight's shape alone. Layouts: weights.h, activations.h.
//
//   block   8 warps: 4 tiles of 16 outputs, each by 2 warps that take every other step; the second
//           warp's sums are added to the first's
//   grid    (blocks of 4 tiles, slices of the inputs, groups of rows); where there are slices, the
//           last block of them to end adds the sums of all, in order
//
// A warp keeps several steps of weights in flight, the first of them while the rows are still being
// prepared; they are unpacked once for all its rows. More than 64 rows are a further group, so a
// prompt gets the bits that its tokens get one by one.
//
//   launch(Linear{...}, {.stream = stream, .scratch = scratch});
#include "kernels/base/check.h"
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kWarp = 32;
constexpr int kStepWarps = 2;
constexpr int kThreads = kWarp * kTilesOfBlock * kStepWarps;
constexpr int kMostGroups = 8;

/// Steps of weights that a warp has under way: fewer where sums take the registers.
constexpr int steps_ahead(int groups) {
  return groups <= 2 ? 4 : 2;
}

/// What a launch needs beside the weight. Pointers into scratch, and the op's own.
struct ProductArgs {
  const std::byte* data;
  const WeightTile* tiles;
  int inputs;
  int slices;
  bool gated;

  const IntegerStep* integers;  // [step][row_groups]
  const FloatStep* floats;
  int row_groups;

  float4* partial;  // [row chunk, block][slice][tile][group][lane], where slices > 1
  int* tickets;     // [row chunk, block], zero

  int rows;
  Epilogue epilogue;
  float* y;
  int y_stride;
};

template <DType kType, int kGroups>
__device__ __forceinline__ void sum_steps(const ProductArgs& args, const std::byte* tile,
                                          int first_group, int step_warp, int lane,
                                          float (&sums)[kGroups][4]) {
  constexpr StepFormat kFormat = step_format(kType);
  constexpr int kAhead = steps_ahead(kGroups);
  const int steps = kFormat.steps(args.inputs);
  const int of_slice = (steps + args.slices - 1) / args.slices;
  const int begin = static_cast<int>(blockIdx.y) * of_slice;
  const int end = begin + of_slice < steps ? begin + of_slice : steps;
  const int first = begin + step_warp;

  RawStep ahead[kAhead] = {};
  COPPICE_UNROLL
  for (int i = 0; i < kAhead; ++i) {
    const int step = first + i * kStepWarps;
    if (step < end) ahead[i] = load_step<kType>(tile, step, lane);
  }
  wait_for_previous();  // weights are no kernel's work; the rows are
  COPPICE_NO_UNROLL
  for (int base = first; base < end; base += kAhead * kStepWarps) {
    COPPICE_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int step = base + i * kStepWarps;
      if (step < end) {
        const RawStep raw = ahead[i];
        const int later = step + kAhead * kStepWarps;
        if (later < end) ahead[i] = load_step<kType>(tile, later, lane);
        const size_t rows = static_cast<size_t>(step) * args.row_groups + first_group;
        if constexpr (is_float(kType)) {
          multiply_floats<kType>(raw, args.floats + rows, lane, sums);
        } else {
          multiply_integers<kType>(raw, args.integers + rows, lane, sums);
        }
      }
    }
  }
}

template <int kGroups>
__device__ __forceinline__ void sum_tile(const ProductArgs& args, const WeightTile& tile,
                                         int first_group, int step_warp, int lane,
                                         float (&sums)[kGroups][4]) {
  const std::byte* data = args.data + tile.offset;
  switch (tile.type) {
    case DType::f32:
      return sum_steps<DType::f32>(args, data, first_group, step_warp, lane, sums);
    case DType::f16:
      return sum_steps<DType::f16>(args, data, first_group, step_warp, lane, sums);
    case DType::bf16:
      return sum_steps<DType::bf16>(args, data, first_group, step_warp, lane, sums);
    case DType::q4_0:
      return sum_steps<DType::q4_0>(args, data, first_group, step_warp, lane, sums);
    case DType::q4_1:
      return sum_steps<DType::q4_1>(args, data, first_group, step_warp, lane, sums);
    case DType::q5_0:
      return sum_steps<DType::q5_0>(args, data, first_group, step_warp, lane, sums);
    case DType::q5_1:
      return sum_steps<DType::q5_1>(args, data, first_group, step_warp, lane, sums);
    case DType::q8_0:
      return sum_steps<DType::q8_0>(args, data, first_group, step_warp, lane, sums);
    case DType::q4_k:
      return sum_steps<DType::q4_k>(args, data, first_group, step_warp, lane, sums);
    case DType::q5_k:
      return sum_steps<DType::q5_k>(args, data, first_group, step_warp, lane, sums);
    case DType::q6_k:
      return sum_steps<DType::q6_k>(args, data, first_group, step_warp, lane, sums);
  }
}

/// Adds what the other blocks of these outputs summed over their slices of the inputs. True in the
/// one block that has all the sums, in its first step warps' registers.
template <int kGroups>
__device__ __forceinline__ bool join_slices(const ProductArgs& args, int tile, int lane,
                                            bool has_sums, float (&sums)[kGroups][4]) {
  COPPICE_SHARED(int, arrival, 1);
  const int place = static_cast<int>(blockIdx.z * gridDim.x + blockIdx.x);
  const auto at = [&](int slice, int group) {
    const size_t index = static_cast<size_t>(place) * args.slices + slice;
    return args.partial + ((index * kTilesOfBlock + tile) * kGroups + group) * kWarp + lane;
  };
  if (has_sums) {
    COPPICE_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      *at(static_cast<int>(blockIdx.y), group) =
          make_float4(sums[group][0], sums[group][1], sums[group][2], sums[group][3]);
    }
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x == 0) arrival[0] = atomicAdd(&args.tickets[place], 1);
  __syncthreads();
  const int before = arrival[0];
  if (before != args.slices - 1) return false;
  __threadfence();
  if (!has_sums) return true;
  COPPICE_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    float4 total = *at(0, group);
    for (int slice = 1; slice < args.slices; ++slice) {
      const float4 part = *at(slice, group);
      total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
    }
    sums[group][0] = total.x;
    sums[group][1] = total.y;
    sums[group][2] = total.z;
    sums[group][3] = total.w;
  }
  return true;
}

template <int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups < kMostGroups ? 2 : 1)
    multiply(ProductArgs args) {
  let_next_start();
  COPPICE_SHARED(float4, exchange, kTilesOfBlock * kGroups * kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int tile_of_block = warp % kTilesOfBlock, step_warp = warp / kTilesOfBlock;
  const WeightTile tile = args.tiles[blockIdx.x * kTilesOfBlock + tile_of_block];
  const int first_group = static_cast<int>(blockIdx.z) * kGroups;
  const Shared<float4> own = exchange + tile_of_block * kGroups * kWarp + lane;

  float sums[kGroups][4] = {};
  if (tile.outputs > 0) sum_tile(args, tile, first_group, step_warp, lane, sums);
  wait_for_previous();  // warps without a tile

  const auto put = [&] {
    COPPICE_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      own[group * kWarp] =
          make_float4(sums[group][0], sums[group][1], sums[group][2], sums[group][3]);
    }
  };
  if (step_warp == 1) put();
  __syncthreads();
  if (step_warp == 0) {
    COPPICE_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const float4 other = own[group * kWarp];
      sums[group][0] += other.x;
      sums[group][1] += other.y;
      sums[group][2] += other.z;
      sums[group][3] += other.w;
    }
  }
  if (args.slices > 1 && !join_slices(args, tile_of_block, lane, step_warp == 0, sums)) return;

  const bool is_up = args.gated && tile_of_block >= kTilesOfBlock / 2;
  if (args.gated) {
    if (step_warp == 0 && is_up) put();  // over what this warp alone has read
    __syncthreads();
  }
  if (step_warp != 0 || is_up) return;
  COPPICE_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    float up[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (args.gated) {
      const float4 other = own[(kTilesOfBlock / 2 * kGroups + group) * kWarp];
      up[0] = other.x;
      up[1] = other.y;
      up[2] = other.z;
      up[3] = other.w;
    }
    COPPICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int of_tile = lane / 4 + i / 2 * 8;
      const int row = (first_group + group) * kGroupRows + lane % 4 * 2 + i % 2;
      if (of_tile >= tile.outputs || row >= args.rows) continue;
      const int output = tile.first_output + of_tile;
      store_output(args.epilogue, output, sums[group][i], args.gated, up[i],
                   args.y + static_cast<size_t>(row) * args.y_stride);
    }
  }
}

int groups_of(int rows) {
  return rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : kMostGroups;
}

/// How a product lies in scratch, in bytes.
struct ScratchPlan {
  int groups = 0;                                                      // of rows, in one block
  int chunks = 0;                                                      // blocks along the rows
  size_t integers = 0, floats = 0, partial = 0, tickets = 0, end = 0;  // offsets

  ScratchPlan(const PackedWeight& weight, int rows) : groups(groups_of(rows)) {
    const int chunk_rows = groups * kGroupRows;
    chunks = (rows + chunk_rows - 1) / chunk_rows;
    const auto row_groups = static_cast<size_t>(groups) * chunks;
    const auto take = [&](size_t bytes) {
      const size_t begin = end;
      end += (bytes + 255) / 256 * 256;
      return begin;
    };
    const auto steps = [&](int inputs) {
      return static_cast<size_t>((weight.inputs + inputs - 1) / inputs);
    };
    integers =
        take(weight.has_integers ? steps(kIntegerStep) * row_groups * sizeof(IntegerStep) : 0);
    floats = take(weight.has_floats ? steps(kFloatStep) * row_groups * sizeof(FloatStep) : 0);
    const size_t places = static_cast<size_t>(chunks) * weight.blocks();
    const size_t of_place = sizeof(float4) * kTilesOfBlock * groups * kWarp * weight.slices;
    partial = take(weight.slices > 1 ? places * of_place : 0);
    tickets = take(places * sizeof(int));
  }
};

const PackedWeight& own_weight(const Weight* weight) {
  const auto* own = dynamic_cast<const PackedWeight*>(weight);
  COPPICE_CHECK(own != nullptr && "a weight that this backend packed");
  return *own;
}

}  // namespace

size_t scratch_bytes(const Linear& op, bool exact) {
  if (op.rows == 0) return 0;
  const PackedWeight& weight = own_weight(op.weight);
  if (!exact && op.rows >= kLeastBlasRows) return blas_scratch_bytes(weight, op.rows);
  return ScratchPlan(weight, op.rows).end;
}

void launch(const Linear& op, const LaunchSite& at) {
  const PackedWeight& weight = own_weight(op.weight);
  if (op.rows == 0) return;
  COPPICE_CHECK(op.rows > 0 && op.x != nullptr && op.y != nullptr);
  COPPICE_CHECK(op.x_stride >= weight.inputs && op.y_stride >= weight.outputs);
  COPPICE_CHECK(!(weight.gated && op.bias != nullptr));
  if (!at.exact && op.rows >= kLeastBlasRows) return multiply_by_blas(op, weight, at);
  const ScratchPlan plan(weight, op.rows);
  const auto in_scratch = [&]<class T>(T*, size_t offset) {
    return reinterpret_cast<T*>(at.scratch + offset);
  };
  const int row_groups = plan.groups * plan.chunks;

  PrepareArgs prepare{.x = op.x, .x_stride = op.x_stride, .gather = op.gather, .rows = op.rows};
  prepare.inputs = weight.inputs;
  prepare.norm = op.norm;
  prepare.eps = op.norm_eps;
  prepare.row_groups = row_groups;
  if (weight.has_integers) {
    prepare.integers = in_scratch(static_cast<IntegerStep*>(nullptr), plan.integers);
  }
  if (weight.has_floats) {
    prepare.floats = in_scratch(static_cast<FloatStep*>(nullptr), plan.floats);
  }
  prepare.tickets = in_scratch(static_cast<int*>(nullptr), plan.tickets);
  prepare.ticket_count = plan.chunks * weight.blocks();
  prepare_rows(prepare, at.stream);

  ProductArgs args{.data = weight.data.data(), .tiles = weight.table(), .inputs = weight.inputs};
  args.slices = weight.slices;
  args.gated = weight.gated;
  args.integers = prepare.integers;
  args.floats = prepare.floats;
  args.row_groups = row_groups;
  args.partial = in_scratch(static_cast<float4*>(nullptr), plan.partial);
  args.tickets = prepare.tickets;
  args.rows = op.rows;
  args.epilogue = {op.bias, op.activation, op.accumulate};
  args.y = op.y;
  args.y_stride = op.y_stride;
  const LaunchShape shape{.name = "multiply",
                          .grid = extent(weight.blocks(), weight.slices, plan.chunks),
                          .block = extent(kThreads),
                          .stream = at.stream};
  switch (plan.groups) {
    case 1:
      return launch<multiply<1>>(shape, args);
    case 2:
      return launch<multiply<2>>(shape, args);
    case 4:
      return launch<multiply<4>>(shape, args);
    default:
      return launch<multiply<kMostGroups>>(shape, args);
  }
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
