// Products of many rows in `fast` mode: by cuBLAS, over weights and rows rounded to bf16.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/weights.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// Rows from which rounding the weights for one product is worth it.
inline constexpr int kLeastBlasRows = 65;

size_t blas_scratch_bytes(const PackedWeight& weight, int rows);
/// `op` as launch(Linear) takes it, its shapes checked.
void multiply_by_blas(const Linear& op, const PackedWeight& weight, const LaunchSite& at);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
