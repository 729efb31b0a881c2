// Packing weights into panels, reading a row back, and the list of instruction sets.
#include "kernels/cpu/products.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/base/blocks.h"
#include "kernels/base/error.h"
#include "kernels/cpu/panel_layout.h"
#include "kernels/cpu/product_sets.h"

#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/mman.h>
#endif

namespace coppice::cpu {
namespace {

int panel_count(int64_t outputs) {
  return static_cast<int>((outputs + kPanelOutputs - 1) / kPanelOutputs);
}

/// Stores q + offset of one output and input into a block that was all zero bits there.
void store_value(int bits, uint8_t* values, int output, int input, int stored) {
  const int place = 4 * output + input % 4;
  if (bits == 8) {
    values[64 * (input / 4) + place] = static_cast<uint8_t>(stored);
    return;
  }
  const auto set = [&](int at, int value, int shift) {
    values[at + place] = static_cast<uint8_t>(values[at + place] | value << shift);
  };
  set(64 * (input / 8), stored & 15, input / 4 % 2 * 4);
  if (bits == 5) set(256, stored >> 4, input / 4);
  if (bits == 6) set(256 + 64 * (input / 16), stored >> 4, input / 4 % 4 * 2);
}

// read_block(block, stored, scales): the stored values (q + offset) of a file's block, and its
// scales in the panel's order: d, minimum, then for K types two bytes a block of 32.

struct Scales {
  uint16_t top[2] = {};    // d and minimum
  uint8_t sub[8][2] = {};  // K types
};

int nibble(const uint8_t (&nibbles)[16], int j) {
  return j < 16 ? nibbles[j] & 15 : nibbles[j - 16] >> 4;
}
template <class Block>
void read_nibbles(const Block& block, uint8_t* stored) {
  for (int j = 0; j < 32; ++j) {
    int q = nibble(block.nibbles, j);
    if constexpr (requires { block.fifth_bits; }) q |= (block.fifth_bits >> j & 1) << 4;
    stored[j] = static_cast<uint8_t>(q);
  }
}
template <class Block>
void read_block(const Block& block, uint8_t* stored, Scales& scales) {
  read_nibbles(block, stored);
  scales.top[0] = block.d;
  if constexpr (requires { block.m; }) scales.top[1] = block.m;
}
void read_block(const BlockQ8_0& block, uint8_t* stored, Scales& scales) {
  for (int j = 0; j < 32; ++j) stored[j] = static_cast<uint8_t>(block.q[j] + 128);
  scales.top[0] = block.d;
}
template <class Block>
void read_twice_scaled(const Block& block, uint8_t* stored, Scales& scales) {
  for (int s = 0; s < 8; ++s) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = block.nibbles[32 * (s / 2) + l];
      int q = s % 2 == 0 ? byte & 15 : byte >> 4;
      if constexpr (requires { block.fifth_bits; }) q |= (block.fifth_bits[l] >> s & 1) << 4;
      stored[32 * s + l] = static_cast<uint8_t>(q);
    }
    const SubScale sub = sub_scale(block.scales, s);
    scales.sub[s][0] = static_cast<uint8_t>(sub.scale);
    scales.sub[s][1] = static_cast<uint8_t>(sub.minimum);
  }
  scales.top[0] = block.d;
  scales.top[1] = block.d_min;
}
void read_block(const BlockQ4_K& block, uint8_t* stored, Scales& scales) {
  read_twice_scaled(block, stored, scales);
}
void read_block(const BlockQ5_K& block, uint8_t* stored, Scales& scales) {
  read_twice_scaled(block, stored, scales);
}
void read_block(const BlockQ6_K& block, uint8_t* stored, Scales& scales) {
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, quarter = j % 128 / 32, l = j % 32;
    const uint8_t byte = block.nibbles[64 * half + 32 * (quarter % 2) + l];
    const int low = quarter < 2 ? byte & 15 : byte >> 4;
    const int high = block.upper_bits[32 * half + l] >> (2 * quarter) & 3;
    stored[j] = static_cast<uint8_t>(low | high << 4);
  }
  for (int s = 0; s < 16; ++s) scales.sub[s / 2][s % 2] = static_cast<uint8_t>(block.scales[s]);
  scales.top[0] = block.d;
}

/// Writes one panel: outputs first_row.. of the view, as many as it has.
template <class Block, DType kType>
void pack_blocks(const TensorView& view, int64_t first_row, uint8_t* panel) {
  constexpr PanelLayout kLayout = panel_layout(kType);
  constexpr int kInputs = record_inputs(kType);
  constexpr int kTop = kPanelOutputs * int{sizeof(uint16_t)};
  for (int i = 0; i < kPanelOutputs && first_row + i < view.rows; ++i) {
    const auto* block = reinterpret_cast<const Block*>(view.row(first_row + i));
    uint8_t* record = panel;
    for (int64_t k = 0; k < view.cols; k += kInputs, record += record_bytes(kType)) {
      uint8_t stored[kInputs];
      Scales scales;
      read_block(*block++, stored, scales);
      for (int j = 0; j < kInputs; ++j) {
        store_value(kLayout.bits, record + j / kBlock * block_value_bytes(kType), i, j % kBlock,
                    stored[j]);
      }
      uint8_t* to = record + scales_begin(kType);
      if constexpr (kLayout.k_type) {
        for (int s = 0; s < 8; ++s) {
          to[2 * kPanelOutputs * s + i] = scales.sub[s][0];
          to[2 * kPanelOutputs * s + kPanelOutputs + i] = scales.sub[s][1];
        }
        to += 2 * kPanelOutputs * 8;
      }
      for (int t = 0; t < (kLayout.minimum ? 2 : 1); ++t) {
        std::memcpy(to + kTop * t + 2 * i, &scales.top[t], sizeof(uint16_t));
      }
    }
  }
}

void pack_floats(const TensorView& view, int64_t first_row, uint8_t* panel) {
  const size_t bytes = static_cast<size_t>(traits(view.type).block_bytes);
  for (int i = 0; i < kPanelOutputs && first_row + i < view.rows; ++i) {
    const std::byte* row = view.row(first_row + i);
    for (size_t k = 0; k < static_cast<size_t>(view.cols); ++k) {
      std::memcpy(panel + (k * kPanelOutputs + static_cast<size_t>(i)) * bytes, row + k * bytes,
                  bytes);
    }
  }
}

void pack_panel(const TensorView& view, int64_t first_row, uint8_t* panel) {
  switch (view.type) {
    case DType::q4_0:
      return pack_blocks<BlockQ4_0, DType::q4_0>(view, first_row, panel);
    case DType::q4_1:
      return pack_blocks<BlockQ4_1, DType::q4_1>(view, first_row, panel);
    case DType::q5_0:
      return pack_blocks<BlockQ5_0, DType::q5_0>(view, first_row, panel);
    case DType::q5_1:
      return pack_blocks<BlockQ5_1, DType::q5_1>(view, first_row, panel);
    case DType::q8_0:
      return pack_blocks<BlockQ8_0, DType::q8_0>(view, first_row, panel);
    case DType::q4_k:
      return pack_blocks<BlockQ4_K, DType::q4_k>(view, first_row, panel);
    case DType::q5_k:
      return pack_blocks<BlockQ5_K, DType::q5_k>(view, first_row, panel);
    case DType::q6_k:
      return pack_blocks<BlockQ6_K, DType::q6_k>(view, first_row, panel);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return pack_floats(view, first_row, panel);
  }
}

size_t panel_bytes(const TensorView& view) {
  return static_cast<size_t>(view.cols / record_inputs(view.type)) *
         static_cast<size_t>(record_bytes(view.type));
}

}  // namespace

uint8_t* PanelMemory::take(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20, kRegion = size_t{64} << 20;
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > left_) {
    const size_t size = (std::max(bytes, kRegion) + kHugePage - 1) / kHugePage * kHugePage;
    regions_.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size)), std::free);
    if (regions_.back() == nullptr) throw Failure("cpu weights: no memory for {} bytes more", size);
#if defined(__linux__)
    madvise(regions_.back().get(), size, MADV_HUGEPAGE);  // as good without, only slower
#endif
    next_ = regions_.back().get();
    left_ = size;
  }
  left_ -= bytes;
  return std::exchange(next_, next_ + bytes);
}

PackedWeight::PackedWeight(std::span<const TensorView> parts, Stacking stacking,
                           std::shared_ptr<PanelMemory> memory, const ParallelFor& parallel_for)
    : memory_(std::move(memory)) {
  COPPICE_CHECK(!parts.empty());
  panels_.gated = stacking == Stacking::gated;
  COPPICE_CHECK(!panels_.gated || parts.size() == 2);
  panels_.inputs = static_cast<int>(parts[0].cols);
  std::vector<size_t> begin;
  for (const TensorView& view : parts) {
    if (view.cols != parts[0].cols || (panels_.gated && view.rows != parts[0].rows)) {
      throw Error(
          "packed weight: parts of {} x {} and {} x {} cannot be joined; the file is broken",
          parts[0].rows, parts[0].cols, view.rows, view.cols);
    }
    PanelPart part;
    part.type = view.type;
    part.outputs = static_cast<int>(view.rows);
    part.panel_bytes = panel_bytes(view);
    if (!panels_.gated) {
      part.first_panel = panels_.count;
      part.first_output = outputs;
    }
    begin.push_back(bytes);
    bytes += (part.panel_bytes * static_cast<size_t>(panel_count(view.rows)) + 63) / 64 * 64;
    if (!panels_.gated || parts_.empty()) {
      outputs += part.outputs;
      panels_.count += panel_count(view.rows);
    }
    (is_float(part.type) ? panels_.reads_floats : panels_.reads_integers) = true;
    parts_.push_back(part);
  }
  inputs = panels_.inputs;
  uint8_t* const all = memory_->take(bytes);
  for (size_t i = 0; i < parts_.size(); ++i) {
    PanelPart& part = parts_[i];
    uint8_t* data = all + begin[i];
    part.data = data;
    parallel_for(panel_count(part.outputs), [&](int p) {
      uint8_t* panel = data + static_cast<size_t>(p) * part.panel_bytes;
      std::memset(panel, 0, part.panel_bytes);
      pack_panel(parts[i], int64_t{p} * kPanelOutputs, panel);
    });
  }
  panels_.parts = parts_.data();
  panels_.part_count = static_cast<int>(parts_.size());
}

namespace {

float half_at(const uint8_t* halves, int i) {
  uint16_t bits;
  std::memcpy(&bits, halves + 2 * i, sizeof(bits));
  return half_to_float(bits);
}

template <DType kType>
void read_row(const uint8_t* panel, int output, int inputs, float scale, float* out) {
  constexpr PanelLayout kLayout = panel_layout(kType);
  constexpr int kRecordBlocks = record_inputs(kType) / kBlock;
  constexpr int kTop = kPanelOutputs * int{sizeof(uint16_t)};
  for (int b = 0; b < inputs / kBlock; ++b) {
    const int block = b % kRecordBlocks;
    const uint8_t* record = panel + b / kRecordBlocks * record_bytes(kType);
    const uint8_t* values = record + block * block_value_bytes(kType);
    const uint8_t* sub = record + scales_begin(kType);
    const uint8_t* top = sub + (kLayout.k_type ? 2 * kPanelOutputs * 8 : 0);
    sub += 2 * kPanelOutputs * block + output;
    const float d = half_at(top, output);
    const float m = kLayout.minimum ? half_at(top + kTop, output) : 0.0f;
    for (int k = 0; k < kBlock; ++k) {
      const int q = stored_value<kLayout.bits>(values, output, k) - kLayout.offset;
      float value;
      if constexpr (kType == DType::q6_k) {
        const int half = k < kBlock / 2 ? 0 : kPanelOutputs;
        value = d * static_cast<float>(static_cast<int8_t>(sub[half])) * static_cast<float>(q);
      } else if constexpr (kLayout.k_type) {
        value = d * static_cast<float>(sub[0]) * static_cast<float>(q) -
                m * static_cast<float>(sub[kPanelOutputs]);
      } else {
        value = d * static_cast<float>(q);
        if constexpr (kLayout.minimum) value += m;
      }
      out[b * kBlock + k] = value * scale;
    }
  }
}

template <class Value, class Convert>
void read_floats(const uint8_t* panel, int output, int inputs, float scale, float* out,
                 Convert convert) {
  for (int k = 0; k < inputs; ++k) {
    Value value;
    std::memcpy(&value, panel + sizeof(Value) * static_cast<size_t>(k * kPanelOutputs + output),
                sizeof(Value));
    out[k] = convert(value) * scale;
  }
}

}  // namespace

void embed_row(const Panels& table, int32_t row, float scale, float* out) {
  const PanelPart& part = table.parts[0];
  COPPICE_CHECK(table.part_count == 1 && row >= 0 && row < part.outputs);
  const uint8_t* panel = part.data + static_cast<size_t>(row / kPanelOutputs) * part.panel_bytes;
  const int i = row % kPanelOutputs, n = table.inputs;
  switch (part.type) {
    case DType::q4_0:
      return read_row<DType::q4_0>(panel, i, n, scale, out);
    case DType::q4_1:
      return read_row<DType::q4_1>(panel, i, n, scale, out);
    case DType::q5_0:
      return read_row<DType::q5_0>(panel, i, n, scale, out);
    case DType::q5_1:
      return read_row<DType::q5_1>(panel, i, n, scale, out);
    case DType::q8_0:
      return read_row<DType::q8_0>(panel, i, n, scale, out);
    case DType::q4_k:
      return read_row<DType::q4_k>(panel, i, n, scale, out);
    case DType::q5_k:
      return read_row<DType::q5_k>(panel, i, n, scale, out);
    case DType::q6_k:
      return read_row<DType::q6_k>(panel, i, n, scale, out);
    case DType::f32:
      return read_floats<float>(panel, i, n, scale, out, [](float value) { return value; });
    case DType::f16:
      return read_floats<uint16_t>(panel, i, n, scale, out, half_to_float);
    case DType::bf16:
      return read_floats<uint16_t>(panel, i, n, scale, out, bfloat16_to_float);
  }
}

std::span<const ProductKernels* const> product_kernels() {
  static const std::vector<const ProductKernels*> usable = [] {
    std::vector<const ProductKernels*> sets;
#if defined(__x86_64__)
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && __builtin_cpu_supports("avx512vnni")) sets.push_back(&kAvx512VnniProducts);
    if (avx512) sets.push_back(&kAvx512Products);
    // Every processor with AVX2 and FMA also converts half floats (F16C).
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      sets.push_back(&kAvx2Products);
    }
#endif
#if defined(__aarch64__) && defined(HWCAP_ASIMDDP)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) sets.push_back(&kNeonProducts);
#endif
    sets.push_back(&kScalarProducts);
    return sets;
  }();
  return usable;
}

}  // namespace coppice::cpu
