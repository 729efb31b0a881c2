// Decoding of the eleven tensor types of GGUF files to floats, and of the 16-bit float formats.
// Source: blocks.h. Products of a scale and an integer are exact in float; only the last addition
// of a decoded value rounds (Q6_K: its last product).
//
//   dequantise_row(view, 0, row);
#include "kernels/base/dtype.h"

#include <bit>
#include <cstring>

#include "kernels/base/blocks.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr DTypeTraits kF32{"F32", 1, 4};
constexpr DTypeTraits kF16{"F16", 1, 2};
constexpr DTypeTraits kBf16{"BF16", 1, 2};
constexpr DTypeTraits kQ4_0{"Q4_0", 32, sizeof(BlockQ4_0)};
constexpr DTypeTraits kQ4_1{"Q4_1", 32, sizeof(BlockQ4_1)};
constexpr DTypeTraits kQ5_0{"Q5_0", 32, sizeof(BlockQ5_0)};
constexpr DTypeTraits kQ5_1{"Q5_1", 32, sizeof(BlockQ5_1)};
constexpr DTypeTraits kQ8_0{"Q8_0", 32, sizeof(BlockQ8_0)};
constexpr DTypeTraits kQ4_K{"Q4_K", 256, sizeof(BlockQ4_K)};
constexpr DTypeTraits kQ5_K{"Q5_K", 256, sizeof(BlockQ5_K)};
constexpr DTypeTraits kQ6_K{"Q6_K", 256, sizeof(BlockQ6_K)};

const DTypeTraits* find_traits(DType type) {
  switch (type) {
    case DType::f32:
      return &kF32;
    case DType::f16:
      return &kF16;
    case DType::bf16:
      return &kBf16;
    case DType::q4_0:
      return &kQ4_0;
    case DType::q4_1:
      return &kQ4_1;
    case DType::q5_0:
      return &kQ5_0;
    case DType::q5_1:
      return &kQ5_1;
    case DType::q8_0:
      return &kQ8_0;
    case DType::q4_k:
      return &kQ4_K;
    case DType::q5_k:
      return &kQ5_K;
    case DType::q6_k:
      return &kQ6_K;
  }
  return nullptr;
}

int nibble(const uint8_t (&nibbles)[16], int j) {
  return j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
}

int fifth_bit(uint32_t bits, int j) {
  return static_cast<int>(bits >> j & 1) << 4;
}

// decode(block, out): writes the values of one block.

void decode(const BlockQ4_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(nibble(block.nibbles, j) - 8);
}

void decode(const BlockQ4_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(nibble(block.nibbles, j)) + m;
}

void decode(const BlockQ5_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 32; ++j) {
    const int q = nibble(block.nibbles, j) | fifth_bit(block.fifth_bits, j);
    out[j] = d * static_cast<float>(q - 16);
  }
}

void decode(const BlockQ5_1& block, float* out) {
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  for (int j = 0; j < 32; ++j) {
    const int q = nibble(block.nibbles, j) | fifth_bit(block.fifth_bits, j);
    out[j] = d * static_cast<float>(q) + m;
  }
}

void decode(const BlockQ8_0& block, float* out) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(block.q[j]);
}

/// `upper(sub_block, l)` is what a value has above its four low bits.
template <class Block, class Upper>
void decode_twice_scaled(const Block& block, float* out, Upper upper) {
  const float d = half_to_float(block.d);
  const float d_min = half_to_float(block.d_min);
  for (int s = 0; s < 8; ++s) {
    const SubScale sub = sub_scale(block.scales, s);
    const float scale = d * static_cast<float>(sub.scale);
    const float minimum = d_min * static_cast<float>(sub.minimum);
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = block.nibbles[32 * (s / 2) + l];
      const int q = (s % 2 == 0 ? byte & 15 : byte >> 4) | upper(s, l);
      out[32 * s + l] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void decode(const BlockQ4_K& block, float* out) {
  decode_twice_scaled(block, out, [](int, int) { return 0; });
}

void decode(const BlockQ5_K& block, float* out) {
  decode_twice_scaled(block, out,
                      [&](int s, int l) { return (block.fifth_bits[l] >> s & 1) << 4; });
}

void decode(const BlockQ6_K& block, float* out) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, quarter = j % 128 / 32, l = j % 32;
    const uint8_t byte = block.nibbles[64 * half + 32 * (quarter % 2) + l];
    const int low = quarter < 2 ? byte & 15 : byte >> 4;
    const int high = block.upper_bits[32 * half + l] >> (2 * quarter) & 3;
    const float scale = d * static_cast<float>(block.scales[j / 16]);
    out[j] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

template <class Block>
void decode_blocks(const std::byte* data, int block_values, std::span<float> out) {
  const auto* block = reinterpret_cast<const Block*>(data);
  for (size_t i = 0; i < out.size(); i += static_cast<size_t>(block_values)) {
    decode(*block++, out.data() + i);
  }
}

template <class Convert>
void decode_16_bit(const std::byte* data, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    out[i] = convert(bits);
  }
}

}  // namespace

std::optional<DType> dtype_from_gguf(uint32_t number) {
  const auto type = static_cast<DType>(number);
  if (find_traits(type) == nullptr) return std::nullopt;
  return type;
}

const DTypeTraits& traits(DType type) {
  const DTypeTraits* found = find_traits(type);
  COPPICE_CHECK(found != nullptr);
  return *found;
}

void dequantise_row(const TensorView& view, int64_t row, std::span<float> out) {
  COPPICE_CHECK(row >= 0 && row < view.rows);
  COPPICE_CHECK(static_cast<int64_t>(out.size()) == view.cols);
  const int values = traits(view.type).block_values;
  COPPICE_CHECK(view.cols % values == 0);
  const std::byte* data = view.row(row);
  switch (view.type) {
    case DType::f32:
      std::memcpy(out.data(), data, out.size_bytes());
      break;
    case DType::f16:
      decode_16_bit(data, out, half_to_float);
      break;
    case DType::bf16:
      decode_16_bit(data, out, bfloat16_to_float);
      break;
    case DType::q4_0:
      decode_blocks<BlockQ4_0>(data, values, out);
      break;
    case DType::q4_1:
      decode_blocks<BlockQ4_1>(data, values, out);
      break;
    case DType::q5_0:
      decode_blocks<BlockQ5_0>(data, values, out);
      break;
    case DType::q5_1:
      decode_blocks<BlockQ5_1>(data, values, out);
      break;
    case DType::q8_0:
      decode_blocks<BlockQ8_0>(data, values, out);
      break;
    case DType::q4_k:
      decode_blocks<BlockQ4_K>(data, values, out);
      break;
    case DType::q5_k:
      decode_blocks<BlockQ5_K>(data, values, out);
      break;
    case DType::q6_k:
      decode_blocks<BlockQ6_K>(data, values, out);
      break;
  }
}

float half_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > 0x7c00u) {  // NaN, made quiet as the hardware's conversion does
    return std::bit_cast<float>(sign | 0x7fc00000u | magnitude << 13);
  }
  if (magnitude == 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u);
  if (magnitude < 0x0400u) {  // zero or subnormal: a count of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) {  // halfway past the largest half
    half = 0x7c00u;
  } else if (magnitude < std::bit_cast<uint32_t>(0x1p-14f)) {
    // Beside 0.5 a float's last place is 2^-24, a half's smallest step: the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  } else {
    half = ((magnitude + 0x0fffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
  }
  return static_cast<uint16_t>(sign | half);
}

float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace coppice
