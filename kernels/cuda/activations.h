// Activations as the products read them: rows in groups of 8, the columns of a tensor core's B
// operand, each step of them a struct in fragment order, so that a lane's operand is one load.
// Quantised weights read 8-bit values with a scale for each block of 32; float weights read two
// bf16 numbers whose sum is the value within 2^-17.
//
//   steps of all groups:  [step][group of 8 rows]
#pragma once

#include <cstdint>

#include "kernels/cuda/device.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

inline constexpr int kGroupRows = 8;

/// 64 inputs of 8 rows: x = scale q.
struct alignas(16) IntegerStep {
  uint32_t q[32][4];  // [lane]: registers b0, b1 of the first block of 32, then of the second
  float scale[4][4];  // [lane % 4]: first block of rows 2t, 2t + 1, then the second block
  float sum[4][4];    // likewise: scale times the sum of q, for types with a minimum
};
static_assert(sizeof(IntegerStep) == 640);

/// 16 inputs of 8 rows: x = high + low.
struct alignas(16) FloatStep {
  uint32_t q[32][4];  // [lane]: b0, b1 of the high parts, then of the low parts
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
