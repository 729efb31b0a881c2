// Weights as a finished head holds them: blocks of 32 as GGUF has them (kernels/base/blocks.h), or
// halves.
//
//   std::vector<std::byte> bytes = to_q4_1(row);  // 20 bytes for 32 values
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace coppice {

/// 32 values share a scale, the largest of them 127 of it. Whole blocks.
std::vector<std::byte> to_q8_0(std::span<const float> values);

/// 32 values share a scale and a minimum: those with the least squared error among some ranges,
/// each fitted to the values that it rounds to. Whole blocks.
std::vector<std::byte> to_q4_1(std::span<const float> values);

/// Rounded to nearest even.
std::vector<std::byte> to_bf16(std::span<const float> values);

}  // namespace coppice
