// Operations on single rows: norms, the rounding of activations, embedding rows, copies. A block of
// threads has one row and sums it in an order that depends on its length alone.
//
//   launch(AddNorm{...}, {.stream = stream});
#include "kernels/base/check.h"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/weight_value.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// 1 / sqrt(mean(x^2) + eps), in every thread of the block.
__device__ float norm_factor(const float* x, int dim, float eps) {
  COPPICE_SHARED(float, warp_sums, kWarps);
  const int thread = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  for (int i = thread; i < dim; i += kThreads) sum = fmaf(x[i], x[i], sum);
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (thread % kWarp == 0) warp_sums[thread / kWarp] = sum;
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < kWarps; ++w) total += warp_sums[w];
  return 1.0f / sqrtf(total / static_cast<float>(dim) + eps);
}

/// Rounds 4 values, the lane's share of a block of 32 that 8 lanes hold, and writes them.
__device__ void put_integers(const PrepareArgs& args, int row, int input, const float (&x)[4]) {
  constexpr uint32_t kLeast = 0x0d800000;  // 2^-100: smaller blocks are zeros
  constexpr uint32_t kInfinity = 0x7f800000;
  uint32_t largest = 0;  // as bits: NaN is above infinity, infinity above all numbers
  for (int i = 0; i < 4; ++i) {
    const uint32_t size = __float_as_uint(x[i]) & 0x7fffffffu;
    largest = size > largest ? size : largest;
  }
  for (int step = 1; step < 8; step *= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, step);
    largest = other > largest ? other : largest;
  }
  const bool usable = largest >= kLeast && largest < kInfinity;
  const float inverse = usable ? 127.0f / __uint_as_float(largest) : 0.0f;
  uint32_t word = 0;
  int sum = 0;
  for (int i = 0; i < 4; ++i) {
    const int q = usable ? static_cast<int>(rintf(x[i] * inverse)) : 0;
    sum += q;
    word |= static_cast<uint32_t>(q & 0xff) << (8 * i);
  }
  for (int step = 1; step < 8; step *= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);

  const int steps = (args.inputs + kIntegerStep - 1) / kIntegerStep;
  if (input >= steps * kIntegerStep) return;
  IntegerStep& to =
      args.integers[static_cast<size_t>(input / kIntegerStep) * args.row_groups + row / kGroupRows];
  const int g = row % kGroupRows, at = input % kIntegerStep;
  const int block = at / 32;
  to.q[g * 4 + at % 16 / 4][block * 2 + at % 32 / 16] = word;
  if (at % 32 != 0) return;
  // A row with a value that is no number gives no number.
  const float scale = usable                 ? __uint_as_float(largest) / 127.0f
                      : largest >= kInfinity ? __uint_as_float(0x7fc00000u)
                                             : 0.0f;
  to.scale[g / 2][block * 2 + g % 2] = scale;
  to.sum[g / 2][block * 2 + g % 2] = scale * static_cast<float>(sum);
}

__device__ void put_floats(const PrepareArgs& args, int row, int input, const float (&x)[4]) {
  const int steps = (args.inputs + kFloatStep - 1) / kFloatStep;
  if (input >= steps * kFloatStep) return;
  FloatStep& to =
      args.floats[static_cast<size_t>(input / kFloatStep) * args.row_groups + row / kGroupRows];
  const int half = input % kFloatStep / 8;
  for (int pair = 0; pair < 2; ++pair) {
    const uint2 split = split_pair(x[2 * pair], x[2 * pair + 1]);
    uint32_t(&lane)[4] = to.q[row % kGroupRows * 4 + input % 8 / 2 + pair];
    lane[half] = split.x;
    lane[2 + half] = split.y;
  }
}

/// One block a row, padding rows included.
__global__ void __launch_bounds__(kThreads) prepare(PrepareArgs args) {
  follow_previous();
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  for (int i = row * kThreads + thread; i < args.ticket_count;
       i += static_cast<int>(gridDim.x) * kThreads) {
    args.tickets[i] = 0;
  }
  const bool exists = row < args.rows;
  const float* x = args.x;
  float factor = 1.0f;
  if (exists) {
    x += static_cast<size_t>(args.gather != nullptr ? args.gather[row] : row) * args.x_stride;
    if (args.norm != nullptr) factor = norm_factor(x, args.inputs, args.eps);
  }
  for (int base = 0; base < args.inputs; base += 4 * kThreads) {
    const int input = base + 4 * thread;
    float values[4] = {};
    for (int i = 0; i < 4; ++i) {
      if (!exists || input + i >= args.inputs) continue;
      values[i] = x[input + i];
      if (args.norm != nullptr) values[i] = values[i] * factor * args.norm[input + i];
    }
    if (args.integers != nullptr) put_integers(args, row, input, values);
    if (args.floats != nullptr) put_floats(args, row, input, values);
    for (int i = 0; args.rounded != nullptr && i < 4 && input + i < args.inputs; ++i) {
      args.rounded[static_cast<size_t>(row) * args.inputs + input + i] =
          float_to_bfloat16_bits(values[i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads) add_norm(AddNorm op) {
  follow_previous();
  const size_t row = blockIdx.x;
  const float* y = op.y + row * op.dim;
  float* x = op.x + row * op.dim;
  const float factor = norm_factor(y, op.dim, op.eps);
  for (int i = static_cast<int>(threadIdx.x); i < op.dim; i += kThreads) {
    x[i] += y[i] * factor * op.weight[i];
  }
}

__global__ void __launch_bounds__(kThreads) copy_rows(Copy op) {
  follow_previous();
  const float* x = op.x + static_cast<size_t>(blockIdx.x) * op.x_stride;
  float* out = op.out + static_cast<size_t>(blockIdx.x) * op.out_stride;
  for (int i = static_cast<int>(threadIdx.x); i < op.dim; i += kThreads) out[i] = x[i];
}

__global__ void __launch_bounds__(kThreads)
    embed(const std::byte* data, const WeightTile* tiles, const int32_t* token, int dim,
          float scale, float* out) {
  follow_previous();
  const int row = token[blockIdx.x];
  const WeightTile tile = tiles[row / kTileOutputs];
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    const float value = weight_value(tile.type, data + tile.offset, row % kTileOutputs, i);
    out[static_cast<size_t>(blockIdx.x) * dim + i] = value * scale;
  }
}

LaunchShape row_shape(const char* name, int rows, Stream stream) {
  return {.name = name, .grid = extent(rows), .block = extent(kThreads), .stream = stream};
}

}  // namespace

bool can_start_early() {
#if defined(__CUDACC__)
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&copy_rows)),
        "looking for this device's code");
  return CUDART_VERSION >= 12030 && attributes.ptxVersion >= 90;
#else
  return true;
#endif
}

void prepare_rows(const PrepareArgs& args, Stream stream) {
  const int rows = args.row_groups > 0 ? args.row_groups * kGroupRows : args.rows;
  launch<prepare>(row_shape("prepare", rows, stream), args);
}

void launch(const AddNorm& op, const LaunchSite& at) {
  if (op.rows == 0) return;
  COPPICE_CHECK(op.dim > 0 && op.x != nullptr && op.y != nullptr && op.weight != nullptr);
  launch<add_norm>(row_shape("add_norm", op.rows, at.stream), op);
}

void launch(const Copy& op, const LaunchSite& at) {
  if (op.rows == 0 || op.dim == 0) return;
  COPPICE_CHECK(op.x != nullptr && op.out != nullptr);
  COPPICE_CHECK(op.rows == 1 || (op.x_stride >= op.dim && op.out_stride >= op.dim));
  launch<copy_rows>(row_shape("copy", op.rows, at.stream), op);
}

void launch(const Embed& op, const LaunchSite& at) {
  const auto* table = dynamic_cast<const PackedWeight*>(op.table);
  COPPICE_CHECK(table != nullptr && table->parts == 1);
  if (op.rows == 0) return;
  COPPICE_CHECK(op.token != nullptr && op.out != nullptr);
  launch<embed>(row_shape("embed", op.rows, at.stream),
                static_cast<const std::byte*>(table->data.data()), table->table(), op.token,
                table->inputs, op.scale, op.out);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
