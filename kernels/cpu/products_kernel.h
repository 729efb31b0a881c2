// The matrix products, written once over the vectors of an instruction set: every set performs the
// same float operations in the same order, so all give the same bits, whatever the row tile.
//
// For each output and row, blocks of 32 inputs ascending:
//   t   = float(sum of weight * activation, an exact integer) * weight scale + minimum * sum
//   y   = fma(t, activation scale, y)
//
// Included by the files of the instruction sets, which differ in -m flags: everything is in an
// unnamed namespace, so that no two of them share a symbol.
#pragma once

#include <cstring>

#include "kernels/cpu/panel_layout.h"

namespace coppice::cpu {
namespace {

template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

/// body(Index<0>), ..., body(Index<count - 1>): a loop that is unrolled whatever its length.
template <int kCount, class Body>
[[gnu::always_inline]] inline void repeat(const Body& body) {
  if constexpr (kCount > 0) {
    repeat<kCount - 1>(body);
    body(Index<kCount - 1>{});
  }
}

/// body(r) for the rows of a tile, unrolled where the set keeps a register a row.
template <class Isa, int kRows, class Body>
[[gnu::always_inline]] inline void each_row(const Body& body) {
  if constexpr (Isa::kUnrolled) {
    repeat<kRows>(body);
  } else {
    struct Row {
      int value;
    };
    for (int r = 0; r < kRows; ++r) body(Row{r});
  }
}

/// One block of 32 inputs of the rows of a tile: tiles begin at whole groups of 8 rows.
struct TileBlock {
  const IntegerBlock* block;
  int group_stride;  // blocks from one group of 8 rows to the next

  const IntegerBlock& group(int r) const { return block[r / kRowGroup * group_stride]; }
  const int8_t* value(int r) const { return group(r).value[r % kRowGroup]; }
  const float* scale(int r) const { return group(r).scale + r % kRowGroup; }
  const float* sum(int r) const { return group(r).sum + r % kRowGroup; }
  /// -offset times the sum of the values (of a half of them for offset 32); offset is not 0.
  template <int kOffset>
  const int32_t* start(int r, int half) const {
    const IntegerBlock& g = group(r);
    const int32_t* first = kOffset == 8     ? g.minus_8_sum
                           : kOffset == 16  ? g.minus_16_sum
                           : kOffset == 128 ? g.minus_128_sum
                                            : g.minus_32_half_sum[half];
    return first + r % kRowGroup;
  }
};

/// What an integer sum starts from: minus the weights' offset times the sum of the activations.
template <class Isa, int kOffset>
[[gnu::always_inline]] inline typename Isa::Ints start_of(const TileBlock& x, int r, int half) {
  if constexpr (kOffset == 0) {
    return Isa::zero_ints();
  } else {
    return Isa::broadcast(x.template start<kOffset>(r, half));
  }
}

/// Scales of one block of 32 inputs and 16 outputs, as floats (exact for every type).
template <class Isa>
struct BlockScales {
  typename Isa::Floats scale;    // of values 0..31; of 0..15 in Q6_K
  typename Isa::Floats second;   // Q6_K: of values 16..31
  typename Isa::Floats minimum;  // what a q of 0 stands for
};

template <class Isa, DType kType>
[[gnu::always_inline]] inline BlockScales<Isa> block_scales(const uint8_t* record, int block) {
  constexpr PanelLayout kLayout = panel_layout(kType);
  constexpr int kHalves = kPanelOutputs * int{sizeof(uint16_t)};
  const uint8_t* scales = record + scales_begin(kType);
  BlockScales<Isa> result;
  if constexpr (!kLayout.k_type) {
    result.scale = Isa::from_halves(scales);
    if constexpr (kLayout.minimum) result.minimum = Isa::from_halves(scales + kHalves);
  } else {
    const uint8_t* sub = scales + 2 * kPanelOutputs * block;
    const uint8_t* top = scales + 2 * kPanelOutputs * (256 / kBlock);
    const auto d = Isa::from_halves(top);
    if constexpr (kLayout.minimum) {
      result.scale = Isa::mul(d, Isa::from_unsigned_bytes(sub));
      const auto d_min = Isa::negate(Isa::from_halves(top + kHalves));
      result.minimum = Isa::mul(d_min, Isa::from_unsigned_bytes(sub + kPanelOutputs));
    } else {
      result.scale = Isa::mul(d, Isa::from_signed_bytes(sub));
      result.second = Isa::mul(d, Isa::from_signed_bytes(sub + kPanelOutputs));
    }
  }
  return result;
}

/// How far ahead panels are fetched into the second-level cache. They stand one after the other, so
/// the end of one fetches the next. Measured: 1.5 times the read bandwidth of one core.
inline constexpr int kFetchAhead = 6144;

/// out[r] (16 outputs) of one panel for the kRows rows from first_row on.
template <class Isa, DType kType, int kRows>
void integer_tile(const uint8_t* panel, const Activations& x, int first_row,
                  float (*out)[kPanelOutputs]) {
  constexpr PanelLayout kLayout = panel_layout(kType);
  constexpr int kRecordBlocks = record_inputs(kType) / kBlock;
  const int blocks = block_count(x.inputs);
  TileBlock tile{x.integers + first_row / kRowGroup * blocks, blocks};
  typename Isa::Floats y[kRows];
  each_row<Isa, kRows>([&](auto r) __attribute__((always_inline)) { y[r.value] = Isa::zero(); });
  for (int b = 0; b < blocks; ++b, ++tile.block) {
    const uint8_t* record = panel + b / kRecordBlocks * record_bytes(kType);
    const int block = b % kRecordBlocks;
    constexpr int kBlockBytes = record_bytes(kType) / kRecordBlocks;
    for (int line = 0; line < kBlockBytes; line += 64) {
      __builtin_prefetch(record + block * kBlockBytes + kFetchAhead + line, 0, 2);
    }
    const BlockScales<Isa> scales = block_scales<Isa, kType>(record, block);
    Isa::template sums<kLayout.bits, kLayout.offset, kRows>(
        record + block * block_value_bytes(kType), tile,
        [&](auto r, typename Isa::Ints first, typename Isa::Ints second)
            __attribute__((always_inline)) {
              auto t = Isa::to_floats(first);
              if constexpr (kLayout.minimum) {
                t = Isa::fma(t, scales.scale,
                             Isa::mul(scales.minimum, Isa::broadcast(tile.sum(r.value))));
              } else {
                t = Isa::mul(t, scales.scale);
              }
              if constexpr (kLayout.bits == 6) {
                t = Isa::fma(Isa::to_floats(second), scales.second, t);
              }
              y[r.value] = Isa::fma(t, Isa::broadcast(tile.scale(r.value)), y[r.value]);
            });
  }
  each_row<Isa, kRows>([&](auto r) __attribute__((always_inline)) {
    Isa::store(out[r.value], y[r.value]);
  });
}

/// The same for weights that are floats: one fma an input, inputs ascending.
template <class Isa, DType kType, int kRows>
void float_tile(const uint8_t* panel, const Activations& x, int first_row,
                float (*out)[kPanelOutputs]) {
  const int blocks = block_count(x.inputs);
  const FloatBlock* group = x.floats + first_row / kRowGroup * blocks;
  typename Isa::Floats y[kRows];
  each_row<Isa, kRows>([&](auto r) __attribute__((always_inline)) { y[r.value] = Isa::zero(); });
  for (int k = 0; k < x.inputs; ++k, panel += record_bytes(kType)) {
    const float(*value)[kBlock] = group[k / kBlock].value;
    const auto w = Isa::template from_weights<kType>(panel);
    each_row<Isa, kRows>([&](auto r) __attribute__((always_inline)) {
      const float(*row)[kBlock] =
          value + r.value / kRowGroup * blocks * kRowGroup + r.value % kRowGroup;
      y[r.value] = Isa::fma(w, Isa::broadcast(*row + k % kBlock), y[r.value]);
    });
  }
  each_row<Isa, kRows>([&](auto r) __attribute__((always_inline)) {
    Isa::store(out[r.value], y[r.value]);
  });
}

/// Tiles of 1 to 8 rows and of kTileRows.
template <class Isa, DType kType, int kRows = Isa::kTileRows>
void tile(int rows, const uint8_t* panel, const Activations& x, int first_row,
          float (*out)[kPanelOutputs]) {
  if (rows < kRows) {
    constexpr int kFewer = kRows > kRowGroup ? kRowGroup : kRows - 1;
    if constexpr (kRows > 1) tile<Isa, kType, kFewer>(rows, panel, x, first_row, out);
  } else if constexpr (is_float(kType)) {
    float_tile<Isa, kType, kRows>(panel, x, first_row, out);
  } else {
    integer_tile<Isa, kType, kRows>(panel, x, first_row, out);
  }
}

using Tile = void(int rows, const uint8_t* panel, const Activations& x, int first_row,
                  float (*out)[kPanelOutputs]);

template <class Isa>
Tile* tile_of(DType type) {
  switch (type) {
    case DType::f32:
      return tile<Isa, DType::f32>;
    case DType::f16:
      return tile<Isa, DType::f16>;
    case DType::bf16:
      return tile<Isa, DType::bf16>;
    case DType::q4_0:
      return tile<Isa, DType::q4_0>;
    case DType::q4_1:
      return tile<Isa, DType::q4_1>;
    case DType::q5_0:
      return tile<Isa, DType::q5_0>;
    case DType::q5_1:
      return tile<Isa, DType::q5_1>;
    case DType::q8_0:
      return tile<Isa, DType::q8_0>;
    case DType::q4_k:
      return tile<Isa, DType::q4_k>;
    case DType::q5_k:
      return tile<Isa, DType::q5_k>;
    case DType::q6_k:
      return tile<Isa, DType::q6_k>;
  }
  return nullptr;
}

/// e^x within 1 ulp or so for |x| <= 87, clamped beyond; the same bits on every instruction set.
template <class Isa>
typename Isa::Floats exp(typename Isa::Floats x) {
  const auto constant = [](float value) { return Isa::fill(value); };
  x = Isa::min(Isa::max(x, constant(-87.0f)), constant(87.0f));
  // Adding 1.5 * 2^23 rounds to an integer n, which then stands in the low bits.
  const auto shifted = Isa::fma(x, constant(0x1.715476p+0f), constant(0x1.8p23f));
  const auto n = Isa::sub(shifted, constant(0x1.8p23f));
  auto r = Isa::fma(n, constant(-0x1.62e4p-1f), x);  // Cody and Waite: ln 2 in two pieces,
  r = Isa::fma(n, constant(-0x1.7f7d1cp-20f), r);    // |r| <= ln(2) / 2
  auto p = constant(0x1.6c16c2p-10f);                // Taylor: 1/6!, ..., 1, 1
  p = Isa::fma(p, r, constant(0x1.111112p-7f));
  p = Isa::fma(p, r, constant(0x1.555556p-5f));
  p = Isa::fma(p, r, constant(0x1.555556p-3f));
  p = Isa::fma(p, r, constant(0.5f));
  p = Isa::fma(p, r, constant(1.0f));
  p = Isa::fma(p, r, constant(1.0f));
  return Isa::mul(p, Isa::power_of_two(shifted));
}

/// x / (1 + e^-z): silu with z = x; gelu_tanh with z = 2 sqrt(2/pi) (x + 0.044715 x^3), since
/// (1 + tanh(z/2)) / 2 = 1 / (1 + e^-z).
template <class Isa>
typename Isa::Floats activate(Activation activation, typename Isa::Floats x) {
  if (activation == Activation::none) return x;
  auto z = x;
  if (activation == Activation::gelu_tanh) {
    const auto square = Isa::mul(x, x);
    z = Isa::mul(x, Isa::fma(square, Isa::fill(0.0713548162726f), Isa::fill(1.59576912161f)));
  }
  return Isa::div(x, Isa::add(Isa::fill(1.0f), exp<Isa>(Isa::negate(z))));
}

/// What finish reads and writes for the rows of a tile: 16 outputs of each.
struct TileOutputs {
  const float (*sums)[kPanelOutputs];
  const float (*up)[kPanelOutputs];  // null: not gated
  const float* bias;                 // (16) or null
  float* y;                          // rows y_stride apart
  int y_stride;
};

template <class Isa>
void finish(const Epilogue& epilogue, const TileOutputs& tile, int rows) {
  for (int r = 0; r < rows; ++r) {
    float* y = tile.y + size_t{1} * r * tile.y_stride;
    auto v = Isa::load(tile.sums[r]);
    if (tile.bias != nullptr) v = Isa::add(v, Isa::load(tile.bias));
    v = activate<Isa>(epilogue.activation, v);
    if (tile.up != nullptr) v = Isa::mul(v, Isa::load(tile.up[r]));
    if (epilogue.accumulate) v = Isa::add(Isa::load(y), v);
    Isa::store(y, v);
  }
}

/// The same for a panel that has only `count` outputs: by way of memory that has room for 16.
template <class Isa>
void finish_part(const Epilogue& epilogue, TileOutputs tile, int rows, int count) {
  alignas(64) float bias[kPanelOutputs] = {};
  alignas(64) float y[Isa::kTileRows][kPanelOutputs] = {};
  const size_t bytes = sizeof(float) * static_cast<size_t>(count);
  const TileOutputs whole{tile.sums, tile.up, tile.bias != nullptr ? bias : nullptr, y[0],
                          kPanelOutputs};
  if (tile.bias != nullptr) std::memcpy(bias, tile.bias, bytes);
  for (int r = 0; r < rows; ++r) std::memcpy(y[r], tile.y + size_t{1} * r * tile.y_stride, bytes);
  finish<Isa>(epilogue, whole, rows);
  for (int r = 0; r < rows; ++r) std::memcpy(tile.y + size_t{1} * r * tile.y_stride, y[r], bytes);
}

/// Panels that stay in the second-level cache while the rows pass, and rows that do beside them.
inline constexpr size_t kCachedPanelBytes = size_t{256} << 10;
inline constexpr int kCachedRows = 64;

template <class Isa>
void multiply(const Panels& weight, const Activations& x, int first, int last,
              const Epilogue& epilogue, float* y, int y_stride) {
  static_assert(Isa::kTileRows % kRowGroup == 0 && kCachedRows % Isa::kTileRows == 0);
  const PanelPart* part = weight.parts;
  while (first < last) {
    while (!weight.gated && part + 1 < weight.parts + weight.part_count &&
           first >= part[1].first_panel) {
      ++part;
    }
    const int part_end = weight.gated || part + 1 == weight.parts + weight.part_count
                             ? weight.count
                             : part[1].first_panel;
    const size_t bytes = part->panel_bytes + (weight.gated ? part[1].panel_bytes : 0);
    const int cached = static_cast<int>(kCachedPanelBytes / bytes);
    int end = first + (cached > 0 ? cached : 1);
    end = end < last ? end : last;
    end = end < part_end ? end : part_end;
    Tile* const products = tile_of<Isa>(part->type);
    Tile* const up_products = weight.gated ? tile_of<Isa>(part[1].type) : nullptr;
    for (int row_begin = 0; row_begin < x.rows; row_begin += kCachedRows) {
      const int row_end = row_begin + kCachedRows < x.rows ? row_begin + kCachedRows : x.rows;
      for (int panel = first; panel < end; ++panel) {
        const int p = panel - part->first_panel;
        const int output = part->first_output + p * kPanelOutputs;
        const int left = part->outputs - p * kPanelOutputs;
        const int count = left < kPanelOutputs ? left : kPanelOutputs;
        const float* bias = epilogue.bias != nullptr ? epilogue.bias + output : nullptr;
        for (int row = row_begin, rows = 0; row < row_end; row += rows) {
          const int rest = row_end - row;
          rows = rest >= Isa::kTileRows ? Isa::kTileRows : rest > kRowGroup ? kRowGroup : rest;
          alignas(64) float sums[Isa::kTileRows][kPanelOutputs];
          alignas(64) float up[Isa::kTileRows][kPanelOutputs];
          products(rows, part->data + p * part->panel_bytes, x, row, sums);
          if (up_products != nullptr) {
            up_products(rows, part[1].data + p * part[1].panel_bytes, x, row, up);
          }
          const TileOutputs outputs{sums, up_products != nullptr ? up : nullptr, bias,
                                    y + size_t{1} * row * y_stride + output, y_stride};
          if (count == kPanelOutputs) {
            finish<Isa>(epilogue, outputs, rows);
          } else {
            finish_part<Isa>(epilogue, outputs, rows, count);
          }
        }
      }
    }
    first = end;
  }
}

template <class Isa>
void quantise_block(const float* x, IntegerBlock& block, int lane) {
  const auto first = Isa::load(x);
  const auto second = Isa::load(x + kBlock / 2);
  const float largest = Isa::reduce_max(Isa::max(Isa::absolute(first), Isa::absolute(second)));
  int sums[2] = {0, 0};
  const bool flawed = Isa::has_flaw(first, second);
  float scale = flawed ? __builtin_nanf("") : 0.0f;
  if (!flawed && largest >= 1e-35f) {
    scale = largest / 127.0f;
    const auto inverse = Isa::fill(127.0f / largest);
    sums[0] = Isa::to_bytes(Isa::mul(first, inverse), block.value[lane]);
    sums[1] = Isa::to_bytes(Isa::mul(second, inverse), block.value[lane] + kBlock / 2);
  } else {
    std::memset(block.value[lane], 0, kBlock);
  }
  const int sum = sums[0] + sums[1];
  block.scale[lane] = scale;
  block.sum[lane] = static_cast<float>(sum);
  block.minus_8_sum[lane] = -8 * sum;
  block.minus_16_sum[lane] = -16 * sum;
  block.minus_128_sum[lane] = -128 * sum;
  for (int half = 0; half < 2; ++half) block.minus_32_half_sum[half][lane] = -32 * sums[half];
}

template <class Isa>
void quantise(const float* x, int row, int begin, int end, const Activations& to) {
  const int first_block = row / kRowGroup * block_count(to.inputs);
  const int lane = row % kRowGroup;
  for (int b = begin; b < end; ++b) {
    const float* values = x + b * kBlock;
    if (to.integers != nullptr) quantise_block<Isa>(values, to.integers[first_block + b], lane);
    if (to.floats != nullptr) {
      const int count = to.inputs - b * kBlock < kBlock ? to.inputs - b * kBlock : kBlock;
      std::memcpy(to.floats[first_block + b].value[lane], values,
                  sizeof(float) * static_cast<size_t>(count));
    }
  }
}

template <class Isa>
constexpr ProductKernels product_kernels_of(const char* name) {
  return {name, quantise<Isa>, multiply<Isa>};
}

}  // namespace
}  // namespace coppice::cpu
