// See blas.cuh. Three kernels stand around cuBLAS: weights to bf16, rows normed and to bf16, and
// the epilogue. The emulator has a plain loop in the place of cuBLAS, so that all but it is tested.
//
//   scratch   weight (tiles 16, inputs) bf16 | rows (rows, inputs) bf16 | product (rows, tiles 16)
#include "kernels/cuda/blas.cuh"
#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/weight_value.cuh"

#if defined(__CUDACC__)
#include <cublasLt.h>

#include "kernels/cuda/library.h"
#endif

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kBlasThreads = 256;

/// One block a row of a tile; rows that do not exist become zeros.
__global__ void __launch_bounds__(kBlasThreads)
    widen(const std::byte* data, const WeightTile* tiles, int inputs, uint16_t* out) {
  follow_previous();
  const int row = static_cast<int>(blockIdx.x);
  const WeightTile tile = tiles[row / kTileOutputs];
  const int of_tile = row % kTileOutputs;
  for (int i = static_cast<int>(threadIdx.x); i < inputs; i += kBlasThreads) {
    const float value =
        of_tile < tile.outputs ? weight_value(tile.type, data + tile.offset, of_tile, i) : 0.0f;
    out[static_cast<size_t>(row) * inputs + i] = float_to_bfloat16_bits(value);
  }
}

/// One block a row of the product: bias, activation, gate, sum, to where the tiles say.
__global__ void __launch_bounds__(kBlasThreads)
    finish(Linear op, const WeightTile* tiles, int tile_count, bool gated, const float* product) {
  follow_previous();
  const size_t row = blockIdx.x;
  const int width = tile_count * kTileOutputs;
  for (int i = static_cast<int>(threadIdx.x); i < width; i += kBlasThreads) {
    const int tile_index = i / kTileOutputs, of_tile = i % kTileOutputs;
    const WeightTile tile = tiles[tile_index];
    const bool is_up = gated && tile_index % kTilesOfBlock >= kTilesOfBlock / 2;
    if (is_up || of_tile >= tile.outputs) continue;
    const int up_column = i + kTilesOfBlock / 2 * kTileOutputs;
    const float* sums = product + row * width;
    store_output({op.bias, op.activation, op.accumulate}, tile.first_output + of_tile, sums[i],
                 gated, gated ? sums[up_column] : 1.0f, op.y + row * op.y_stride);
  }
}

/// c (rows, outputs) = x (rows, inputs) times w (outputs, inputs) transposed.
struct Product {
  int rows, outputs, inputs;
  const uint16_t* x;
  const uint16_t* w;
  float* c;
};

#if defined(__CUDACC__)

struct Blas {
  Library library{"libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)};
  COPPICE_LIBRARY_FUNCTION(create, cublasLtCreate);
  COPPICE_LIBRARY_FUNCTION(destroy, cublasLtDestroy);
  COPPICE_LIBRARY_FUNCTION(status_text, cublasLtGetStatusString);
  COPPICE_LIBRARY_FUNCTION(create_product, cublasLtMatmulDescCreate);
  COPPICE_LIBRARY_FUNCTION(destroy_product, cublasLtMatmulDescDestroy);
  COPPICE_LIBRARY_FUNCTION(set_product, cublasLtMatmulDescSetAttribute);
  COPPICE_LIBRARY_FUNCTION(create_layout, cublasLtMatrixLayoutCreate);
  COPPICE_LIBRARY_FUNCTION(destroy_layout, cublasLtMatrixLayoutDestroy);
  COPPICE_LIBRARY_FUNCTION(multiply, cublasLtMatmul);
  cublasLtHandle_t handle = nullptr;

  Blas() { check(create(&handle), "starting cuBLAS"); }
  Blas(const Blas&) = delete;
  ~Blas() { static_cast<void>(destroy(handle)); }
  void check(cublasStatus_t status, const char* doing) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw Failure("cuda: {}: {}", doing, status_text(status));
  }
};

template <class T>
struct Owned {
  cublasStatus_t (*destroy)(T);
  T value = nullptr;
  ~Owned() {
    if (value != nullptr) static_cast<void>(destroy(value));
  }
};

// cuBLAS counts columns first: what it calls C is our c transposed, A our w, B our x transposed.
void run_product(const Product& p, const LaunchSite& at) {
  const Blas& blas = *static_cast<const Blas*>(at.blas);
  Owned<cublasLtMatmulDesc_t> product{blas.destroy_product};
  blas.check(blas.create_product(&product.value, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
  const cublasOperation_t transposed = CUBLAS_OP_T;
  blas.check(
      blas.set_product(product.value, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "a product");
  using Layout = Owned<cublasLtMatrixLayout_t>;
  Layout a{blas.destroy_layout}, b{blas.destroy_layout}, c{blas.destroy_layout};
  const auto make = [&](Layout& layout, cudaDataType type, int rows, int columns) {
    blas.check(blas.create_layout(&layout.value, type, static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows),
               "a matrix");
  };
  make(a, CUDA_R_16BF, p.inputs, p.outputs);
  make(b, CUDA_R_16BF, p.inputs, p.rows);
  make(c, CUDA_R_32F, p.outputs, p.rows);
  const float one = 1.0f, zero = 0.0f;
  blas.check(blas.multiply(blas.handle, product.value, &one, p.w, a.value, p.x, b.value, &zero, p.c,
                           c.value, p.c, c.value, nullptr, nullptr, 0, at.stream),
             "multiplying");
}

#else

__global__ void plain_product(Product p) {
  follow_previous();
  const int row = static_cast<int>(blockIdx.x);
  for (int o = static_cast<int>(threadIdx.x); o < p.outputs; o += static_cast<int>(blockDim.x)) {
    float sum = 0.0f;
    for (int i = 0; i < p.inputs; ++i) {
      sum = fmaf(bfloat16_bits_to_float(p.x[static_cast<size_t>(row) * p.inputs + i]),
                 bfloat16_bits_to_float(p.w[static_cast<size_t>(o) * p.inputs + i]), sum);
    }
    p.c[static_cast<size_t>(row) * p.outputs + o] = sum;
  }
}

void run_product(const Product& p, const LaunchSite& at) {
  launch<plain_product>(
      {.name = "plain_product", .grid = extent(p.rows), .block = extent(32), .stream = at.stream},
      p);
}

#endif

struct BlasPlan {
  size_t weight = 0, rows = 0, product = 0, end = 0;  // offsets in bytes

  BlasPlan(const PackedWeight& packed, int row_count) {
    const auto take = [&](size_t bytes) {
      const size_t begin = end;
      end += (bytes + 255) / 256 * 256;
      return begin;
    };
    const auto width = static_cast<size_t>(packed.tiles) * kTileOutputs;
    weight = take(width * packed.inputs * sizeof(uint16_t));
    rows = take(static_cast<size_t>(row_count) * packed.inputs * sizeof(uint16_t));
    product = take(row_count * width * sizeof(float));
  }
};

}  // namespace

std::shared_ptr<void> make_blas() {
#if defined(__CUDACC__)
  return std::make_shared<Blas>();
#else
  return nullptr;
#endif
}

size_t blas_scratch_bytes(const PackedWeight& weight, int rows) {
  return BlasPlan(weight, rows).end;
}

void multiply_by_blas(const Linear& op, const PackedWeight& weight, const LaunchSite& at) {
  const BlasPlan plan(weight, op.rows);
  const int width = weight.tiles * kTileOutputs;
  auto* w = reinterpret_cast<uint16_t*>(at.scratch + plan.weight);
  auto* x = reinterpret_cast<uint16_t*>(at.scratch + plan.rows);
  auto* product = reinterpret_cast<float*>(at.scratch + plan.product);
  launch<widen>(
      {.name = "widen", .grid = extent(width), .block = extent(kBlasThreads), .stream = at.stream},
      static_cast<const std::byte*>(weight.data.data()), weight.table(), weight.inputs, w);
  PrepareArgs prepare{.x = op.x, .x_stride = op.x_stride, .gather = op.gather, .rows = op.rows};
  prepare.inputs = weight.inputs;
  prepare.norm = op.norm;
  prepare.eps = op.norm_eps;
  prepare.rounded = x;
  prepare_rows(prepare, at.stream);
  run_product({op.rows, width, weight.inputs, x, w, product}, at);
  launch<finish>({.name = "finish",
                  .grid = extent(op.rows),
                  .block = extent(kBlasThreads),
                  .stream = at.stream},
                 op, weight.table(), weight.tiles, weight.gated,
                 static_cast<const float*>(product));
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
