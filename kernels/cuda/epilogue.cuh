// What becomes of a product's sums: bias, activation, gate, and the sum with what stood there.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/device.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct Epilogue {
  const float* bias;  // (outputs) or null
  Activation activation;
  bool accumulate;
};

__device__ __forceinline__ float activated(Activation activation, float x) {
  if (activation == Activation::silu) return x / (1.0f + expf(-x));
  if (activation == Activation::gelu_tanh) {
    constexpr float kSqrt2OverPi = 0.797884561f;
    return 0.5f * x * (1.0f + tanhf(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
  }
  return x;
}

/// Writes one output of the row `y`; a gated product has the sum of its up half as well.
__device__ __forceinline__ void store_output(const Epilogue& epilogue, int output, float sum,
                                             bool gated, float up, float* y) {
  if (epilogue.bias != nullptr) sum += epilogue.bias[output];
  float value = activated(epilogue.activation, sum);
  if (gated) value *= up;
  y[output] = epilogue.accumulate ? y[output] + value : value;
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
