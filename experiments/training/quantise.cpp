// See quantise.h.
#include "experiments/training/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/base/blocks.h"
#include "kernels/base/dtype.h"

namespace coppice {
namespace {

constexpr size_t kValues = 32;
using Values = std::span<const float, kValues>;

/// convert(values) of every block, one after the other.
template <class Convert>
std::vector<std::byte> in_blocks(std::span<const float> values, const Convert& convert) {
  using Block = decltype(convert(values.first<kValues>()));
  std::vector<std::byte> bytes(values.size() / kValues * sizeof(Block));
  for (size_t i = 0; i < values.size() / kValues; ++i) {
    const Block block = convert(values.subspan(i * kValues).first<kValues>());
    std::memcpy(bytes.data() + i * sizeof(block), &block, sizeof(block));
  }
  return bytes;
}

BlockQ8_0 q8_0_of(Values values) {
  float most = 0.0f;
  for (const float value : values) most = std::max(most, std::fabs(value));
  BlockQ8_0 block = {};
  block.d = float_to_half(most / 127.0f);
  const float unit = half_to_float(block.d);
  for (size_t i = 0; i < kValues; ++i) {
    const float steps = unit > 0.0f ? std::nearbyint(values[i] / unit) : 0.0f;
    block.q[i] = static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f));
  }
  return block;
}

/// value = scale q + minimum for q in 0..15.
struct Range {
  float scale, minimum;
};

/// The values in that range, as a block; their squared error, and the range that fits the q best.
struct Rounded {
  BlockQ4_1 block = {};
  double error = 0.0;
  Range fitted;
};

Rounded round_into(Values values, Range range) {
  Rounded made;
  made.block.d = float_to_half(range.scale);
  made.block.m = float_to_half(range.minimum);
  const float scale = half_to_float(made.block.d), minimum = half_to_float(made.block.m);
  double q_sum = 0.0, x_sum = 0.0, q_squares = 0.0, products = 0.0;
  for (size_t i = 0; i < kValues; ++i) {
    const float steps = scale > 0.0f ? std::nearbyint((values[i] - minimum) / scale) : 0.0f;
    const float q = std::clamp(steps, 0.0f, 15.0f);
    const double off = double{scale} * q + minimum - values[i];
    made.error += off * off;
    q_sum += q;
    x_sum += values[i];
    q_squares += double{q} * q;
    products += double{q} * values[i];
    made.block.nibbles[i % 16] |= static_cast<uint8_t>(static_cast<int>(q) << (i < 16 ? 0 : 4));
  }
  const double n = kValues, spread = q_squares - q_sum * q_sum / n;
  const double slope = spread > 0.0 ? (products - q_sum * x_sum / n) / spread : range.scale;
  made.fitted = {static_cast<float>(slope), static_cast<float>((x_sum - slope * q_sum) / n)};
  return made;
}

BlockQ4_1 q4_1_of(Values values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float middle = 0.5f * (*least + *most), half = 0.5f * (*most - *least);
  Rounded best;
  best.error = std::numeric_limits<double>::infinity();
  for (const float part : {1.0f, 0.96f, 0.92f, 0.88f, 0.84f, 0.8f}) {
    Range range{2.0f * part * half / 15.0f, middle - part * half};
    for (int fits = 0; fits < 4; ++fits) {
      const Rounded made = round_into(values, range);
      if (made.error < best.error) best = made;
      range = made.fitted;
    }
  }
  return best.block;
}

}  // namespace

std::vector<std::byte> to_q8_0(std::span<const float> values) {
  return in_blocks(values, q8_0_of);
}

std::vector<std::byte> to_q4_1(std::span<const float> values) {
  return in_blocks(values, q4_1_of);
}

std::vector<std::byte> to_bf16(std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * sizeof(uint16_t));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &values[i], sizeof(bits));
    const auto upper = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(bytes.data() + i * sizeof(upper), &upper, sizeof(upper));
  }
  return bytes;
}

}  // namespace coppice
