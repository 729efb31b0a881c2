// What the matrix products read and write, as plain structs: weights cut into panels, activations
// quantised per row, the work done on an output before it is stored, and one table of functions
// an instruction set. The files compiled with -m flags see nothing but this.
//
//   const ProductKernels& kernels = product_kernels().front();  // products.h
//   kernels.quantise(x, r, 0, block_count(inputs), activations);  // for each row r
//   kernels.multiply(weight.panels(), activations, 0, weight.panels().count, {}, y, y_stride);
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace coppice::cpu {

inline constexpr int kPanelOutputs = 16;  // outputs of a panel: one zmm, two ymm, four q registers
inline constexpr int kBlock = 32;         // inputs that share one activation scale
inline constexpr int kRowGroup = 8;       // rows whose activations are interleaved

/// One part of a weight, cut into panels of 16 outputs: the last may be partly empty. A panel is a
/// row of records, inputs ascending; panel_layout.h says what stands in one.
struct PanelPart {
  DType type{};
  int outputs = 0;
  int first_panel = 0;
  int first_output = 0;
  size_t panel_bytes = 0;
  const uint8_t* data = nullptr;  // (panels, panel_bytes), 64-byte aligned
};

/// A packed weight. Work is handed out by panel: `count` of them, each writing up to 16 outputs of
/// every row. In a gated weight panel p is panel p of both parts, gate then up.
struct Panels {
  const PanelPart* parts = nullptr;
  int part_count = 0;
  bool gated = false;
  int count = 0;
  int inputs = 0;
  bool reads_integers = false;  // the forms of the activations that the parts read
  bool reads_floats = false;
};

/// Activations of 8 rows and 32 inputs, quantised: x = value * scale. The sums save the products
/// from subtracting a weight's offset value by value: they start an integer sum instead of zero.
struct IntegerBlock {
  int8_t value[kRowGroup][kBlock];
  float scale[kRowGroup];
  float sum[kRowGroup];                     // of the 32 values, for weights that have a minimum
  int32_t minus_8_sum[kRowGroup];           // -8 times the sum: weights stored as q + 8
  int32_t minus_16_sum[kRowGroup];          // q + 16
  int32_t minus_128_sum[kRowGroup];         // q + 128
  int32_t minus_32_half_sum[2][kRowGroup];  // q + 32, values 0..15 and 16..31
};
struct FloatBlock {
  float value[kRowGroup][kBlock];
};

/// Activations of some rows in the forms a weight reads; memory is the caller's, 64-byte aligned.
/// Row r, input k stands in block (r / 8) * block_count(inputs) + k / 32.
struct Activations {
  int rows = 0;
  int inputs = 0;
  IntegerBlock* integers = nullptr;  // integer_bytes(rows, inputs), inputs of whole blocks; or null
  FloatBlock* floats = nullptr;      // float_bytes(rows, inputs), or null
};

constexpr int block_count(int inputs) {
  return (inputs + kBlock - 1) / kBlock;
}
constexpr int row_groups(int rows) {
  return (rows + kRowGroup - 1) / kRowGroup;
}
constexpr size_t integer_bytes(int rows, int inputs) {
  return sizeof(IntegerBlock) * row_groups(rows) * block_count(inputs);
}
constexpr size_t float_bytes(int rows, int inputs) {
  return sizeof(FloatBlock) * row_groups(rows) * block_count(inputs);
}

/// What happens to W x before it is stored: + bias, activation, (gated: times up), + y.
struct Epilogue {
  const float* bias = nullptr;  // (outputs) or null; null for a gated weight
  Activation activation = Activation::none;
  bool accumulate = false;
};

/// The products of one instruction set. All sets give the same bits: integer sums are exact, floats
/// are combined in one order with explicit fma.
struct ProductKernels {
  const char* name;
  /// Writes blocks begin..end-1 of row `row` of `to` in the forms it has memory for. Per block of
  /// 32: scale = largest magnitude / 127, values rounded to nearest even. A block that holds an
  /// infinity or a NaN gets scale NaN; one below 1e-35 becomes zero. The row's bits depend on x
  /// (inputs) alone.
  void (*quantise)(const float* x, int row, int begin, int end, const Activations& to);
  /// y (rows, outputs) for panels first..last-1 and every row; row stride y_stride.
  void (*multiply)(const Panels& weight, const Activations& x, int first, int last,
                   const Epilogue& epilogue, float* y, int y_stride);
};

}  // namespace coppice::cpu
