// Packing: the blocks of a file, re-ordered into the layout of weights.h, and sent to the device.
#include "kernels/cuda/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/base/blocks.h"
#include "kernels/base/error.h"
#include "kernels/cuda/kernels.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kBlock = 32;
constexpr int kBlocksWanted = 264;      // two for each multiprocessor of a large device
constexpr int kLeastStepsOfSlice = 16;  // of 64 inputs: eight for each warp

/// Tile `index` of those that a matrix of `outputs` rows is cut into.
WeightTile tile_at(DType type, int first_output, int outputs, int index) {
  const int first = index * kTileOutputs;
  return {0, first_output + first, std::clamp(outputs - first, 0, kTileOutputs), type};
}

int tiles_of(int64_t outputs) {
  return static_cast<int>((outputs + kTileOutputs - 1) / kTileOutputs);
}

template <class Block>
const Block& block_at(const TensorView& view, int64_t row, int index) {
  return reinterpret_cast<const Block*>(view.row(row))[index];
}

/// The 32 codes of block `block` (of 32 inputs) of a row, as unsigned numbers; Q8_0 as its bytes.
void read_codes(const TensorView& view, int64_t row, int block, uint8_t* code) {
  const auto nibbles = [&](const uint8_t* from) {
    for (int j = 0; j < kBlock; ++j) code[j] = j < 16 ? from[j] & 15 : from[j - 16] >> 4;
  };
  const auto fifth_bits = [&](uint32_t bits) {
    for (int j = 0; j < kBlock; ++j) code[j] |= static_cast<uint8_t>((bits >> j & 1) << 4);
  };
  const int sub = block % 8;  // of a block of 256
  const auto paired_nibbles = [&](const uint8_t* from) {
    for (int j = 0; j < kBlock; ++j) code[j] = from[sub / 2 * 32 + j] >> (sub % 2 * 4) & 15;
  };
  switch (view.type) {
    case DType::q4_0:
      return nibbles(block_at<BlockQ4_0>(view, row, block).nibbles);
    case DType::q4_1:
      return nibbles(block_at<BlockQ4_1>(view, row, block).nibbles);
    case DType::q5_0:
      nibbles(block_at<BlockQ5_0>(view, row, block).nibbles);
      return fifth_bits(block_at<BlockQ5_0>(view, row, block).fifth_bits);
    case DType::q5_1:
      nibbles(block_at<BlockQ5_1>(view, row, block).nibbles);
      return fifth_bits(block_at<BlockQ5_1>(view, row, block).fifth_bits);
    case DType::q8_0:
      std::memcpy(code, block_at<BlockQ8_0>(view, row, block).q, kBlock);
      return;
    case DType::q4_k:
      return paired_nibbles(block_at<BlockQ4_K>(view, row, block / 8).nibbles);
    case DType::q5_k: {
      const auto& from = block_at<BlockQ5_K>(view, row, block / 8);
      paired_nibbles(from.nibbles);
      for (int j = 0; j < kBlock; ++j) {
        code[j] |= static_cast<uint8_t>((from.fifth_bits[j] >> sub & 1) << 4);
      }
      return;
    }
    case DType::q6_k: {
      const auto& from = block_at<BlockQ6_K>(view, row, block / 8);
      const int quarter = sub % 4;
      for (int j = 0; j < kBlock; ++j) {
        const int low = from.nibbles[sub / 4 * 64 + quarter % 2 * 32 + j] >> (quarter / 2 * 4) & 15;
        const int upper = from.upper_bits[sub / 4 * 32 + j] >> (2 * quarter) & 3;
        code[j] = static_cast<uint8_t>(low | upper << 4);
      }
      return;
    }
    default:
      check_failed("a quantised type", __FILE__, __LINE__);
  }
}

void put_half(std::byte* scales, int index, uint16_t bits) {
  std::memcpy(scales + index * 2, &bits, sizeof(bits));
}

/// Scales of one row's block of 32, into the planes of its step.
void put_scales(const TensorView& view, int64_t row, int block, int row_of_tile, std::byte* header,
                std::byte* scales) {
  const int g = row_of_tile % 8, upper = row_of_tile / 8;
  const int at = block % 2 * 2 + upper;  // of the four (block, row) pairs that lane group g reads
  const auto one = [&](uint16_t d) { put_half(scales + g * 8, at, d); };
  const auto two = [&](uint16_t d, uint16_t m) {
    put_half(scales + g * 16, at, d);
    put_half(scales + g * 16, 4 + at, m);
  };
  const auto twice = [&](const auto& from) {
    put_half(header + g * 8, upper, from.d);
    put_half(header + g * 8, 2 + upper, from.d_min);
    const SubScale sub = sub_scale(from.scales, block % 8);
    scales[g * 8 + at] = static_cast<std::byte>(sub.scale);
    scales[g * 8 + 4 + at] = static_cast<std::byte>(sub.minimum);
  };
  switch (view.type) {
    case DType::q4_0:
      return one(block_at<BlockQ4_0>(view, row, block).d);
    case DType::q4_1:
      return two(block_at<BlockQ4_1>(view, row, block).d, block_at<BlockQ4_1>(view, row, block).m);
    case DType::q5_0:
      return one(block_at<BlockQ5_0>(view, row, block).d);
    case DType::q5_1:
      return two(block_at<BlockQ5_1>(view, row, block).d, block_at<BlockQ5_1>(view, row, block).m);
    case DType::q8_0:
      return one(block_at<BlockQ8_0>(view, row, block).d);
    case DType::q4_k:
      return twice(block_at<BlockQ4_K>(view, row, block / 8));
    case DType::q5_k:
      return twice(block_at<BlockQ5_K>(view, row, block / 8));
    case DType::q6_k: {
      const auto& from = block_at<BlockQ6_K>(view, row, block / 8);
      put_half(header + g * 4, upper, from.d);
      for (int half = 0; half < 2; ++half) {
        const int8_t scale = from.scales[block % 8 * 2 + half];
        scales[g * 8 + block % 2 * 4 + half * 2 + upper] = static_cast<std::byte>(scale);
      }
      return;
    }
    default:
      check_failed("a quantised type", __FILE__, __LINE__);
  }
}

void put_codes(const StepFormat& format, int row_of_tile, int block, const uint8_t* code,
               std::byte* step) {
  std::byte* upper_plane = step + format.scale_bytes;
  std::byte* low_plane = upper_plane + format.upper_bytes;
  for (int j = 0; j < kBlock; ++j) {
    const FragmentPlace place = integer_place(row_of_tile, block % 2 * kBlock + j);
    if (format.low_bytes == 1024) {
      low_plane[place.block * 512 + place.lane * 16 + place.reg * 4 + place.at] =
          static_cast<std::byte>(code[j]);
      continue;
    }
    const int word = place.block * 2 + row_of_tile / 8;
    low_plane[place.lane * 16 + word * 4 + place.at] |=
        static_cast<std::byte>((code[j] & 15) << (place.reg / 2 * 4));
    const int upper = code[j] >> 4;
    if (format.upper_bytes == 128) {
      upper_plane[place.lane * 4 + place.at] |=
          static_cast<std::byte>(upper << (place.block * 4 + place.reg));
    } else if (format.upper_bytes == 256) {
      upper_plane[place.lane * 8 + place.block * 4 + place.at] |=
          static_cast<std::byte>(upper << (2 * place.reg));
    }
  }
}

void pack_integers(const TensorView& view, int64_t row, int row_of_tile, std::byte* tile) {
  const StepFormat format = step_format(view.type);
  uint8_t code[kBlock];
  for (int block = 0; block < view.cols / kBlock; ++block) {
    std::byte* step = tile + format.offset(block / 2);
    read_codes(view, row, block, code);
    put_codes(format, row_of_tile, block, code, step);
    put_scales(view, row, block, row_of_tile, tile + format.header_offset(block / 2), step);
  }
}

void pack_floats(const TensorView& view, int64_t row, int row_of_tile, std::byte* tile) {
  const StepFormat format = step_format(view.type);
  const auto size = static_cast<size_t>(traits(view.type).block_bytes);
  for (int input = 0; input < view.cols; ++input) {
    const FragmentPlace place = float_place(row_of_tile, input % kFloatStep);
    std::byte* step = tile + format.offset(input / kFloatStep);
    std::byte* to = size == 4 ? step + place.reg / 2 * 512 + place.lane * 16 +
                                    (place.reg % 2 * 2 + place.at) * 4
                              : step + place.lane * 16 + place.reg * 4 + place.at * 2;
    std::memcpy(to, view.row(row) + input * size, size);
  }
}

/// The tiles of the parts in the order of weights.h, each with its part.
struct Cut {
  std::vector<WeightTile> tiles;
  std::vector<const TensorView*> views;
  std::vector<int64_t> first_rows;

  void add(const TensorView& view, int first_output, int index) {
    tiles.push_back(tile_at(view.type, first_output, static_cast<int>(view.rows), index));
    views.push_back(&view);
    first_rows.push_back(int64_t{index} * kTileOutputs);
  }
};

Cut cut(std::span<const TensorView> parts, Stacking stacking) {
  Cut out;
  if (stacking == Stacking::gated) {
    for (int first = 0; first < tiles_of(parts[0].rows); first += kTilesOfBlock / 2) {
      for (const TensorView& part : parts) {
        for (int i = 0; i < kTilesOfBlock / 2; ++i) out.add(part, 0, first + i);
      }
    }
    return out;
  }
  int first_output = 0;
  for (const TensorView& part : parts) {
    for (int i = 0; i < tiles_of(part.rows); ++i) out.add(part, first_output, i);
    first_output += static_cast<int>(part.rows);
  }
  while (out.tiles.size() % kTilesOfBlock != 0) {  // empty tiles fill the last block
    out.add(parts.back(), first_output, tiles_of(parts.back().rows));
  }
  return out;
}

}  // namespace

std::unique_ptr<Weight> pack_weight(std::span<const TensorView> parts, Stacking stacking) {
  COPPICE_CHECK(!parts.empty());
  static std::atomic<uint64_t> last_number = 0;
  auto weight = std::make_unique<PackedWeight>();
  weight->number = ++last_number;
  weight->gated = stacking == Stacking::gated;
  weight->parts = static_cast<int>(parts.size());
  weight->inputs = static_cast<int>(parts[0].cols);
  for (const TensorView& part : parts) {
    COPPICE_CHECK(part.cols == weight->inputs && part.cols > 0 && part.rows > 0);
    weight->outputs += static_cast<int>(part.rows);
    (is_float(part.type) ? weight->has_floats : weight->has_integers) = true;
  }
  if (weight->gated) {
    COPPICE_CHECK(parts.size() == 2 && parts[0].rows == parts[1].rows);
    weight->outputs = static_cast<int>(parts[0].rows);
  }

  Cut work = cut(parts, stacking);
  size_t bytes = 0;
  for (WeightTile& tile : work.tiles) {
    const StepFormat format = step_format(tile.type);
    tile.offset = bytes;
    if (tile.outputs > 0) bytes += format.header_offset(format.steps(weight->inputs));
  }
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < work.tiles.size(); ++i) {
    const WeightTile& tile = work.tiles[i];
    for (int row = 0; row < tile.outputs; ++row) {
      const auto pack_row = is_float(tile.type) ? pack_floats : pack_integers;
      pack_row(*work.views[i], work.first_rows[i] + row, row, data.data() + tile.offset);
    }
  }
  weight->tiles = static_cast<int>(work.tiles.size());
  const int steps = (weight->inputs + kIntegerStep - 1) / kIntegerStep;
  weight->slices =
      std::clamp(kBlocksWanted / weight->blocks(), 1, std::max(1, steps / kLeastStepsOfSlice));
  weight->data = DeviceBlock(data.size(), "weights");
  weight->data.write(0, data.data(), data.size());
  weight->tile_table = DeviceBlock(work.tiles.size() * sizeof(WeightTile), "weights");
  weight->tile_table.write(0, work.tiles.data(), work.tiles.size() * sizeof(WeightTile));
  weight->bytes = weight->data.bytes() + weight->tile_table.bytes();
  return weight;
}

void refuse_head_size(int head_dim) {
  throw Error(
      "backend cuda: heads of {} values; it has kernels for 16, 32, 64, 80, 96, 128 and 256; use "
      "--backend cpu",
      head_dim);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
