// What becomes of rows before a product: gathered, normed, and rounded into the fragments that the
// product reads, in one pass.
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/device.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct PrepareArgs {
  const float* x = nullptr;  // row r reads x + gather[r] * x_stride
  int x_stride = 0;
  const int32_t* gather = nullptr;  // null: row r
  int rows = 0;
  int inputs = 0;
  const float* norm = nullptr;  // (inputs) or null
  float eps = 0.0f;

  int row_groups = 0;               // those behind `rows` become zeros
  IntegerStep* integers = nullptr;  // [step][row_groups]; null: not wanted
  FloatStep* floats = nullptr;
  uint16_t* rounded = nullptr;  // (rows, inputs) bf16
  int* tickets = nullptr;       // (ticket_count) set to zero
  int ticket_count = 0;
};
void prepare_rows(const PrepareArgs& args, Stream stream);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
