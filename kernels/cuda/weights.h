// Weights as the products read them: quantised types stay quantised, their bits in the order of the
// tensor cores' fragments (mma.cuh), so that a warp's loads are whole lines and a lane unpacks its
// own registers.
//
//   weight   tiles of 16 outputs; a block of threads takes four: of a gated weight, two tiles of
//            gate and the two of the same outputs of up
//   tile     steps along the inputs: 64 of a quantised type, 16 of a float type; K types have a
//            header before each four steps (their blocks of 256)
//   step     of a quantised type: scales | upper bits | low bits. With g = lane / 4, t = lane % 4:
//              scales      [g], of rows g and g + 8 and both blocks of 32
//              upper bits  [lane], of its 8 registers: bit f of byte i is byte i of register f
//                          (fifth bits); bits 2f.. of word b are of block b's register f (Q6_K)
//              low bits    [lane] 4 words: rows g, g + 8 of block 0, then of block 1; nibbles as in
//                          the file: value j < 16 low, j + 16 high; Q8_0: [block][lane] 4 words
//            of a float type: [lane] its 4 registers of two values (f32: [half][lane] 2 x 2)
//
//   const auto weight = pack_weight({&view, 1}, Stacking::concatenated);
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"
#include "kernels/shared/host_device.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

inline constexpr int kTileOutputs = 16;
inline constexpr int kTilesOfBlock = 4;
inline constexpr int kIntegerStep = 64;  // inputs
inline constexpr int kFloatStep = 16;

struct WeightTile {
  uint64_t offset = 0;       // of its first byte in the weight's data
  int32_t first_output = 0;  // of the Linear
  int32_t outputs = 0;       // that exist: 0..16; the others are zeros
  DType type = DType::f32;
};

/// Bytes of a step's planes, and what the codes mean: value = scale (code - zero) [+ minimum].
struct StepFormat {
  int inputs = 0;
  int group = 1;  // steps behind a header
  int header_bytes = 0;
  int scale_bytes = 0;
  int upper_bytes = 0;
  int low_bytes = 0;
  int zero = 0;
  bool minimum = false;

  COPPICE_HD constexpr int bytes() const { return scale_bytes + upper_bytes + low_bytes; }
  COPPICE_HD constexpr size_t group_bytes() const {
    return static_cast<size_t>(header_bytes) + static_cast<size_t>(group) * bytes();
  }
  COPPICE_HD constexpr size_t header_offset(int step) const { return step / group * group_bytes(); }
  COPPICE_HD constexpr size_t offset(int step) const {
    return header_offset(step) + header_bytes + static_cast<size_t>(step % group) * bytes();
  }
  COPPICE_HD constexpr int steps(int weight_inputs) const {
    return (weight_inputs + inputs * group - 1) / (inputs * group) * group;
  }
};

COPPICE_HD constexpr bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}
COPPICE_HD constexpr StepFormat step_format(DType type) {
  switch (type) {
    case DType::f32:
      return {kFloatStep, 1, 0, 0, 0, 1024};
    case DType::f16:
    case DType::bf16:
      return {kFloatStep, 1, 0, 0, 0, 512};
    case DType::q4_0:
      return {kIntegerStep, 1, 0, 64, 0, 512, 8};
    case DType::q4_1:
      return {kIntegerStep, 1, 0, 128, 0, 512, 0, true};
    case DType::q5_0:
      return {kIntegerStep, 1, 0, 64, 128, 512, 16};
    case DType::q5_1:
      return {kIntegerStep, 1, 0, 128, 128, 512, 0, true};
    case DType::q8_0:
      return {kIntegerStep, 1, 0, 64, 0, 1024};
    case DType::q4_k:
      return {kIntegerStep, 4, 64, 64, 0, 512, 0, true};
    case DType::q5_k:
      return {kIntegerStep, 4, 64, 64, 128, 512, 0, true};
    case DType::q6_k:
      return {kIntegerStep, 4, 32, 64, 256, 512, 32};
  }
  return {};
}

/// Where a value stands in its step: the lane that holds it, the register of that lane's fragment
/// (of block `block`), and its place in the register.
struct FragmentPlace {
  int block = 0;  // of 32 inputs; 0 in a float step
  int lane = 0;
  int reg = 0;  // 0..3: see mma.cuh
  int at = 0;   // byte, or 16-bit half
};
COPPICE_HD constexpr FragmentPlace integer_place(int row, int input) {  // input 0..63
  const int half = input % 32 / 16;
  return {input / 32, row % 8 * 4 + input % 16 / 4, half * 2 + row / 8, input % 4};
}
COPPICE_HD constexpr FragmentPlace float_place(int row, int input) {  // input 0..15
  return {0, row % 8 * 4 + input % 8 / 2, input / 8 * 2 + row / 8, input % 2};
}

/// In device memory.
struct PackedWeight final : Weight {
  uint64_t number = 0;  // no two weights of a process have the same
  bool gated = false;
  bool has_integers = false, has_floats = false;  // forms of the activations that its tiles read
  int parts = 0;
  int tiles = 0;   // a multiple of kTilesOfBlock
  int slices = 1;  // of the inputs: each is summed by a block of its own, then all in order
  DeviceBlock data;
  DeviceBlock tile_table;  // WeightTile[tiles]

  const WeightTile* table() const { return reinterpret_cast<const WeightTile*>(tile_table.data()); }
  int blocks() const { return tiles / kTilesOfBlock; }
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
