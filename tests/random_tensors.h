// Seeded inputs for kernel tests: activations with the shapes that hurt, and weights of any type
// whose blocks have random bits and sane scales.
//
//   Rng rng(7);
//   Tensor weight(DType::q4_k, 33, 512, rng);   // 33 rows of 512
//   backend->pack({&weight.view, 1}, Stacking::concatenated);
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/base/blocks.h"
#include "kernels/base/dtype.h"

namespace coppice::test {

inline constexpr DType kAllTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,
                                      DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
                                      DType::q4_k, DType::q5_k, DType::q6_k};

class Rng {
 public:
  explicit Rng(uint32_t seed) : engine_(seed) {}
  float normal() { return std::normal_distribution<float>()(engine_); }
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(engine_); }
  std::vector<float> normals(size_t count) {
    std::vector<float> out(count);
    for (float& value : out) value = normal();
    return out;
  }

 private:
  std::mt19937 engine_;
};

/// (rows, cols): mostly normal values; every fifth row has one value 100 times the others, every
/// seventh is zero, every eleventh holds one size with both signs (integer sums at their largest).
inline std::vector<float> activation_rows(int rows, int cols, Rng& rng) {
  std::vector<float> x = rng.normals(static_cast<size_t>(rows) * cols);
  for (int r = 0; r < rows; ++r) {
    float* row = x.data() + static_cast<size_t>(r) * cols;
    if (r % 5 == 4) row[rng.below(cols)] *= 100.0f;
    for (int i = 0; i < cols; ++i) {
      if (r % 7 == 6) row[i] = 0.0f;
      if (r % 11 == 10) row[i] = i / 32 % 2 == 0 ? 1.5f : -1.5f;
    }
  }
  return x;
}

/// Where a block keeps its f16 scales and minima: `count` of them from byte `at`.
struct ScaleFields {
  size_t at = 0;
  int count = 0;
};
inline ScaleFields scale_fields(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return {};
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
      return {0, 1};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q6_k:
      return {offsetof(BlockQ6_K, d), 1};
  }
  return {};
}

/// A weight as a file would hold it.
class Tensor {
 public:
  Tensor(DType type, int rows, int cols, Rng& rng) : view{type, nullptr, rows, cols} {
    bytes_.resize(view.bytes());
    view.data = bytes_.data();
    if (type == DType::f32) {
      fill<float>(rng, [](float v) { return v; });
    } else if (type == DType::f16) {
      fill<uint16_t>(rng, float_to_half);
    } else if (type == DType::bf16) {
      fill<uint16_t>(rng, upper_half);
    } else {
      for (std::byte& byte : bytes_) byte = static_cast<std::byte>(rng.below(256));
      for_each_scale([&] { return float_to_half(0.01f * rng.normal()); });
    }
  }
  Tensor(const Tensor&) = delete;
  Tensor(Tensor&&) = default;

  /// Of a quantised type: makes every byte `value` but those of the scales, which all become
  /// `scale`.
  void fill_values(int value, float scale) {
    std::fill(bytes_.begin(), bytes_.end(), static_cast<std::byte>(value));
    for_each_scale([&] { return float_to_half(scale); });
  }

  TensorView view;

 private:
  static uint16_t upper_half(float value) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  }
  template <class Bits, class Convert>
  void fill(Rng& rng, Convert convert) {
    for (size_t i = 0; i < bytes_.size(); i += sizeof(Bits)) {
      const Bits bits = convert(0.1f * rng.normal());
      std::memcpy(bytes_.data() + i, &bits, sizeof(bits));
    }
  }
  template <class Value>
  void for_each_scale(Value value) {
    const ScaleFields fields = scale_fields(view.type);
    const auto size = static_cast<size_t>(traits(view.type).block_bytes);
    for (size_t block = 0; block < bytes_.size(); block += size) {
      for (int i = 0; i < fields.count; ++i) {
        const uint16_t bits = value();
        std::memcpy(bytes_.data() + block + fields.at + i * sizeof(bits), &bits, sizeof(bits));
      }
    }
  }

  std::vector<std::byte> bytes_;
};

}  // namespace coppice::test
