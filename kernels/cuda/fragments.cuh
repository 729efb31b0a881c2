// What one lane does with one step of weights: load its share, unpack it once into the registers of
// a tensor core's A operand, and multiply it with every group of rows. Layouts: weights.h, mma.cuh.
//
//   auto raw = load_step<DType::q4_k>(tile, step, lane);       // early: it waits for memory
//   multiply_step<DType::q4_k>(raw, activations, lane, sums);  // sums[group][4] += ...
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/weights.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// A lane's share of a step, as it stands in memory. What a type lacks is never loaded.
struct RawStep {
  uint4 low[2];
  uint2 upper;
  uint4 scales;
  uint2 header;
};

template <DType kType>
__device__ __forceinline__ RawStep load_step(const std::byte* tile, int step, int lane) {
  constexpr StepFormat kFormat = step_format(kType);
  RawStep raw{};
  const std::byte* at = tile + kFormat.offset(step);
  const int g = lane / 4;
  if constexpr (kFormat.scale_bytes == 128) raw.scales = load_as<uint4>(at + g * 16);
  if constexpr (kFormat.scale_bytes == 64) {
    const uint2 scales = load_as<uint2>(at + g * 8);
    raw.scales.x = scales.x;
    raw.scales.y = scales.y;
  }
  at += kFormat.scale_bytes;
  if constexpr (kFormat.upper_bytes == 128) raw.upper.x = load_as<uint32_t>(at + lane * 4);
  if constexpr (kFormat.upper_bytes == 256) raw.upper = load_as<uint2>(at + lane * 8);
  at += kFormat.upper_bytes;
  raw.low[0] = load_as<uint4>(at + lane * 16);
  if constexpr (kFormat.low_bytes == 1024) raw.low[1] = load_as<uint4>(at + 512 + lane * 16);
  const std::byte* header = tile + kFormat.header_offset(step);
  if constexpr (kFormat.header_bytes == 64) raw.header = load_as<uint2>(header + g * 8);
  if constexpr (kFormat.header_bytes == 32) raw.header.x = load_as<uint32_t>(header + g * 4);
  return raw;
}

/// Register `i` of the block's fragment, four codes less the type's zero, signed.
template <DType kType>
__device__ __forceinline__ uint32_t unpack(const RawStep& raw, int block, int i) {
  constexpr StepFormat kFormat = step_format(kType);
  if constexpr (kFormat.low_bytes == 1024) {
    const uint4 word = block == 0 ? raw.low[0] : raw.low[1];
    return i == 0 ? word.x : i == 1 ? word.y : i == 2 ? word.z : word.w;
  } else {
    const uint4& words = raw.low[0];
    const uint32_t word =
        i % 2 == 0 ? (block == 0 ? words.x : words.z) : (block == 0 ? words.y : words.w);
    uint32_t codes = word >> (i / 2 * 4) & 0x0f0f0f0fu;
    if constexpr (kFormat.upper_bytes == 128) {
      codes |= (raw.upper.x >> (4 * block + i) & 0x01010101u) << 4;
    }
    if constexpr (kFormat.upper_bytes == 256) {
      codes |= ((block == 0 ? raw.upper.x : raw.upper.y) >> (2 * i) & 0x03030303u) << 4;
    }
    // Each byte plus 0x80 - zero stays within 8 bits; flipping the top bit subtracts the 0x80.
    constexpr uint32_t kShift = 0x01010101u * (0x80 - kFormat.zero);
    return kFormat.zero == 0 ? codes : (codes + kShift) ^ 0x80808080u;
  }
}

__device__ __forceinline__ float half_of(uint32_t word, int i) {
  return half_bits_to_float(static_cast<uint16_t>(word >> (16 * i)));
}
__device__ __forceinline__ int byte_of(uint32_t word, int i) {
  return static_cast<int>(word >> (8 * i) & 0xff);
}

/// Scale and minimum of block `block` for row g + 8 upper.
template <DType kType>
__device__ __forceinline__ float scale_of(const RawStep& raw, int block, int upper) {
  if constexpr (kType == DType::q4_k || kType == DType::q5_k) {
    const int sub = byte_of(raw.scales.x, 2 * block + upper);
    return half_of(raw.header.x, upper) * static_cast<float>(sub);
  } else {
    return half_of(block == 0 ? raw.scales.x : raw.scales.y, upper);
  }
}
template <DType kType>
__device__ __forceinline__ float minimum_of(const RawStep& raw, int block, int upper) {
  if constexpr (kType == DType::q4_k || kType == DType::q5_k) {
    const int sub = byte_of(raw.scales.y, 2 * block + upper);
    return -(half_of(raw.header.y, upper) * static_cast<float>(sub));
  } else {
    return half_of(block == 0 ? raw.scales.z : raw.scales.w, upper);
  }
}
/// Q6_K: the scale of 16 inputs.
__device__ __forceinline__ float half_block_scale(const RawStep& raw, int block, int half,
                                                  int upper) {
  const uint32_t word = block == 0 ? raw.scales.x : raw.scales.y;
  const int sub = static_cast<int8_t>(byte_of(word, 2 * half + upper));
  return half_of(raw.header.x, upper) * static_cast<float>(sub);
}

// An integer sum that starts at these bits is, read as a float, 1.5 2^23 plus the sum: exact, and a
// subtraction in place of a conversion. Sums of 32 products stay below 2^22.
inline constexpr int kIntegerOrigin = 0x4b400000;
inline constexpr float kFloatOrigin = 12582912.0f;

__device__ __forceinline__ float integer_sum(int bits) {
  return __int_as_float(bits) - kFloatOrigin;
}

template <DType kType, int kGroups>
__device__ __forceinline__ void multiply_integers(const RawStep& raw, const IntegerStep* rows,
                                                  int lane, float (&sums)[kGroups][4]) {
  constexpr bool kMinimum = step_format(kType).minimum;
  [[maybe_unused]] constexpr int kBlocksAtOnce =
      kGroups < 4 ? 2 : 1;  // one where sums take the registers
  const int t = lane % 4;
  COPPICE_UNROLL_BY(kBlocksAtOnce)
  for (int block = 0; block < 2; ++block) {
    uint32_t a[4];
    COPPICE_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = unpack<kType>(raw, block, i);
    float scale[2][2], minimum[2];  // [half of the block, Q6_K only][row g or g + 8]
    COPPICE_UNROLL
    for (int upper = 0; upper < 2; ++upper) {
      if constexpr (kType == DType::q6_k) {
        scale[0][upper] = half_block_scale(raw, block, 0, upper);
        scale[1][upper] = half_block_scale(raw, block, 1, upper);
      } else {
        scale[0][upper] = scale_of<kType>(raw, block, upper);
      }
      if constexpr (kMinimum) minimum[upper] = minimum_of<kType>(raw, block, upper);
    }
    COPPICE_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      const uint2 b = load_as<uint2>(&rows[group].q[lane][2 * block]);
      const float2 x_scale = load_as<float2>(&rows[group].scale[t][2 * block]);
      int c[4] = {kIntegerOrigin, kIntegerOrigin, kIntegerOrigin, kIntegerOrigin};
      float product[4];
      if constexpr (kType == DType::q6_k) {
        int d[4] = {kIntegerOrigin, kIntegerOrigin, kIntegerOrigin, kIntegerOrigin};
        mma_s8_half(c, a[0], a[1], b.x);
        mma_s8_half(d, a[2], a[3], b.y);
        COPPICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          product[i] =
              fmaf(integer_sum(d[i]), scale[1][i / 2], integer_sum(c[i]) * scale[0][i / 2]);
        }
      } else {
        mma_s8(c, a, b.x, b.y);
        COPPICE_UNROLL
        for (int i = 0; i < 4; ++i) product[i] = integer_sum(c[i]) * scale[0][i / 2];
      }
      COPPICE_UNROLL
      for (int i = 0; i < 4; ++i) {
        sums[group][i] = fmaf(product[i], i % 2 == 0 ? x_scale.x : x_scale.y, sums[group][i]);
      }
      if constexpr (kMinimum) {
        const float2 x_sum = load_as<float2>(&rows[group].sum[t][2 * block]);
        COPPICE_UNROLL
        for (int i = 0; i < 4; ++i) {
          sums[group][i] = fmaf(minimum[i / 2], i % 2 == 0 ? x_sum.x : x_sum.y, sums[group][i]);
        }
      }
    }
  }
}

/// Two floats as two pairs of bf16: nearest, and nearest to what is left.
__device__ __forceinline__ uint2 split_pair(float first, float second) {
  const uint32_t high_first = float_to_bfloat16_bits(first);
  const uint32_t high_second = float_to_bfloat16_bits(second);
  const float rest_first = first - bfloat16_bits_to_float(static_cast<uint16_t>(high_first));
  const float rest_second = second - bfloat16_bits_to_float(static_cast<uint16_t>(high_second));
  return make_uint2(high_first | high_second << 16,
                    float_to_bfloat16_bits(rest_first) |
                        static_cast<uint32_t>(float_to_bfloat16_bits(rest_second)) << 16);
}

/// f16 weights are the sum of two bf16 numbers exactly, f32 weights within 2^-17.
template <DType kType, int kGroups>
__device__ __forceinline__ void multiply_floats(const RawStep& raw, const FloatStep* rows, int lane,
                                                float (&sums)[kGroups][4]) {
  constexpr int kPieces = kType == DType::bf16 ? 1 : 2;
  const uint32_t words[8] = {raw.low[0].x, raw.low[0].y, raw.low[0].z, raw.low[0].w,
                             raw.low[1].x, raw.low[1].y, raw.low[1].z, raw.low[1].w};
  uint32_t a[kPieces][4];
  COPPICE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::bf16) {
      a[0][i] = words[i];
    } else {
      const bool half = kType == DType::f16;
      const uint2 split =
          half ? split_pair(half_of(words[i], 0), half_of(words[i], 1))
               : split_pair(__uint_as_float(words[2 * i]), __uint_as_float(words[2 * i + 1]));
      a[0][i] = split.x;
      a[kPieces - 1][i] = split.y;
    }
  }
  COPPICE_UNROLL
  for (int group = 0; group < kGroups; ++group) {
    const uint4 b = load_as<uint4>(&rows[group].q[lane][0]);
    COPPICE_UNROLL
    for (int piece = 0; piece < kPieces; ++piece) {
      mma_bf16(sums[group], a[piece], b.x, b.y);
      mma_bf16(sums[group], a[piece], b.z, b.w);
    }
  }
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
