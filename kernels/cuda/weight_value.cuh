// One value of a packed weight, for the kernels that read single values: embedding rows, and the
// rounding of whole weights.
#pragma once

#include "kernels/cuda/fragments.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// Value `input` of row `row` of a tile, as dequantise_row has it.
template <DType kType>
__device__ inline float weight_value(const std::byte* tile, int row, int input) {
  constexpr StepFormat kFormat = step_format(kType);
  const int step = input / kFormat.inputs;
  if constexpr (is_float(kType)) {
    const FragmentPlace place = float_place(row, input % kFloatStep);
    const std::byte* at = tile + kFormat.offset(step) + place.lane * 16;
    if constexpr (kType == DType::f32) {
      return load_as<float>(at + place.reg / 2 * 512 + (place.reg % 2 * 2 + place.at) * 4);
    }
    const uint16_t bits = load_as<uint16_t>(at + place.reg * 4 + place.at * 2);
    return kType == DType::f16 ? half_bits_to_float(bits) : bfloat16_bits_to_float(bits);
  } else {
    const FragmentPlace place = integer_place(row, input % kIntegerStep);
    const RawStep raw = load_step<kType>(tile, step, place.lane);
    const int upper = row / 8;
    const uint32_t word = unpack<kType>(raw, place.block, place.reg);
    const auto code = static_cast<float>(static_cast<int8_t>(word >> (8 * place.at)));
    if constexpr (kType == DType::q6_k) {
      return half_block_scale(raw, place.block, place.reg / 2, upper) * code;
    }
    const float value = scale_of<kType>(raw, place.block, upper) * code;
    return kFormat.minimum ? value + minimum_of<kType>(raw, place.block, upper) : value;
  }
}

__device__ inline float weight_value(DType type, const std::byte* tile, int row, int input) {
  switch (type) {
    case DType::f32:
      return weight_value<DType::f32>(tile, row, input);
    case DType::f16:
      return weight_value<DType::f16>(tile, row, input);
    case DType::bf16:
      return weight_value<DType::bf16>(tile, row, input);
    case DType::q4_0:
      return weight_value<DType::q4_0>(tile, row, input);
    case DType::q4_1:
      return weight_value<DType::q4_1>(tile, row, input);
    case DType::q5_0:
      return weight_value<DType::q5_0>(tile, row, input);
    case DType::q5_1:
      return weight_value<DType::q5_1>(tile, row, input);
    case DType::q8_0:
      return weight_value<DType::q8_0>(tile, row, input);
    case DType::q4_k:
      return weight_value<DType::q4_k>(tile, row, input);
    case DType::q5_k:
      return weight_value<DType::q5_k>(tile, row, input);
    case DType::q6_k:
      return weight_value<DType::q6_k>(tile, row, input);
  }
  return 0.0f;
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
