// What stands in a panel's record, for each type: 16 outputs by 32 inputs (256 for the K types).
//
//   values: 4 low bits: 4 x 64 bytes; byte 4 * output + i of the n-th holds input 8n + i in its low
//           nibble and input 8n + 4 + i in its high one.
//           bit 4 (5-bit types): 64 bytes; bit g of byte 4 * output + i belongs to input 4g + i.
//           bits 4, 5 (6-bit): 2 x 64 bytes; bits 2g, 2g+1 of the h-th: input 16h + 4g + i.
//           8-bit: 8 x 64 bytes; byte 4 * output + i of the n-th: input 4n + i.
//   scales: f16 d (16 outputs), then f16 minimum (16) where the type has one: x = d q + m.
//           K types: per block of 32 two rows of 16 bytes, scale and minimum (Q6_K: the scales of
//           its two halves), then d and dmin: x = d sc q - dmin mn.
//   floats: the type's own values (16 outputs) for each input; a record is one input.
#pragma once

#include "kernels/cpu/panels.h"

namespace coppice::cpu {

struct PanelLayout {
  int bits;      // of a stored value: 4, 5, 6 or 8; float types: 16 or 32
  int offset;    // stored value = q + offset, always 0..2^bits-1
  bool minimum;  // has a minimum
  bool k_type;   // scales of two levels, records of 256 inputs
};

constexpr PanelLayout panel_layout(DType type) {
  switch (type) {
    case DType::q4_0:
      return {4, 8, false, false};
    case DType::q4_1:
      return {4, 0, true, false};
    case DType::q5_0:
      return {5, 16, false, false};
    case DType::q5_1:
      return {5, 0, true, false};
    case DType::q8_0:
      return {8, 128, false, false};
    case DType::q4_k:
      return {4, 0, true, true};
    case DType::q5_k:
      return {5, 0, true, true};
    case DType::q6_k:
      return {6, 32, false, true};
    case DType::f16:
    case DType::bf16:
      return {16, 0, false, false};
    case DType::f32:
      break;
  }
  return {32, 0, false, false};
}

constexpr bool is_float(DType type) {
  return panel_layout(type).bits >= 16;
}

/// Inputs of a record, and where its scales begin.
constexpr int record_inputs(DType type) {
  return is_float(type) ? 1 : panel_layout(type).k_type ? 256 : kBlock;
}
constexpr int block_value_bytes(DType type) {
  return panel_layout(type).bits * kBlock * kPanelOutputs / 8;
}
constexpr int scales_begin(DType type) {
  return block_value_bytes(type) * (record_inputs(type) / kBlock);
}
constexpr int record_bytes(DType type) {
  const PanelLayout layout = panel_layout(type);
  if (is_float(type)) return layout.bits / 8 * kPanelOutputs;
  const int top = (layout.minimum ? 2 : 1) * kPanelOutputs * int{sizeof(uint16_t)};
  const int sub_scales = layout.k_type ? 2 * kPanelOutputs * (256 / kBlock) : 0;
  return scales_begin(type) + sub_scales + top;
}

/// The stored value (q + offset) of one output and input in a block of a panel.
template <int kBits>
constexpr int stored_value(const uint8_t* values, int output, int input) {
  const int place = 4 * output + input % 4;
  if constexpr (kBits == 8) {
    return values[64 * (input / 4) + place];
  } else {
    int q = values[64 * (input / 8) + place] >> (input / 4 % 2 * 4) & 15;
    if constexpr (kBits == 5) q |= (values[256 + place] >> (input / 4) & 1) << 4;
    if constexpr (kBits == 6) {
      q |= (values[256 + 64 * (input / 16) + place] >> (input / 4 % 4 * 2) & 3) << 4;
    }
    return q;
  }
}

}  // namespace coppice::cpu
