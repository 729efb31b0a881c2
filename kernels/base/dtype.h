// Tensor element types as GGUF files store them, and what a block of each looks like.
// Source: the GGUF specification's type numbers; block layouts in blocks.h.
//
//   TensorView w{DType::q4_1, bytes, 576, 1536};   // 576 rows of 1536 values
//   dequantise_row(w, 3, std::span<float>(row));
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace coppice {

/// Values are GGUF's own type numbers.
enum class DType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

struct DTypeTraits {
  std::string_view name;  // as GGUF tools print it: "Q4_1"
  int block_values;       // values in a block: a row's length is a multiple of it
  int block_bytes;
};

/// Empty for a number that is none of the types above.
std::optional<DType> dtype_from_gguf(uint32_t number);
const DTypeTraits& traits(DType type);

/// A matrix as its file stores it: `rows` rows of `cols` values each, rows contiguous.
struct TensorView {
  DType type{};
  const std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;

  size_t row_bytes() const {
    return static_cast<size_t>(cols / traits(type).block_values) * traits(type).block_bytes;
  }
  size_t bytes() const { return static_cast<size_t>(rows) * row_bytes(); }
  const std::byte* row(int64_t r) const { return data + static_cast<size_t>(r) * row_bytes(); }
};

/// Writes row `row` as floats; out.size() == view.cols.
void dequantise_row(const TensorView& view, int64_t row, std::span<float> out);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);  // round to nearest even
float bfloat16_to_float(uint16_t bits);

}  // namespace coppice
