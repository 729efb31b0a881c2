// One warp's work on one tile of attention (attend.cu): which rows read a block of keys together,
// their scores, and the sum of weighted values. The layout of a block's 32 keys, lane = 4g + t
// (mma.cuh):
//
//   scores   column n of product j is slot 4n + j, so that a lane reads K of slots 4g..4g+3 at once
//   weights  their C registers are the A registers of the second product, whose depth k is then
//            slot 8t + {2s, 2s + 4} and 8t + {2s + 1, 2s + 5} for its steps s = 0, 1
//   values   column n of product i is value g kVector + i, so that a lane reads V in vectors
//
// Rows of a tree may have other keys at the same position. Rows of one block of keys are taken in
// classes that read the same places; what is computed for other rows on the way is thrown away. So
// a value that is no number reaches no row that does not see it.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;
inline constexpr float kWeightUnit = 32768.0f;  // weights times this: f16 holds those down to 2^-40

template <int kHeadDim>
struct Sizes {
  static_assert(kHeadDim % 16 == 0);
  static constexpr int kSteps = kHeadDim / 16;                     // of the scores' depth
  static constexpr int kValues = kHeadDim > 128 ? 128 : kHeadDim;  // that one block sums
  static constexpr int kParts = kHeadDim / kValues;                // blocks for one head
  // Values that a lane reads at once, as the head's size and the registers allow.
  static constexpr int kVector = kHeadDim > 128      ? 4
                                 : kValues % 64 == 0 ? 8
                                 : kValues % 32 == 0 ? 4
                                                     : 2;
  static constexpr int kChunks = kValues / (8 * kVector);
  using Vector =
      std::conditional_t<kVector == 8, uint4, std::conditional_t<kVector == 4, uint2, uint32_t>>;
};

/// The 16 queries of a block of threads and the rows they belong to.
struct Tile {
  int first_query, queries;
  int first_row, rows;
  int kv_head, group;
  // Over its rows:
  int table;       // of the first row
  bool one_table;  // all rows have it
  int least_prefix, least_position, most_position, least_first, most_first;

  /// Row, counted from first_row, of query `q` of the tile.
  __device__ int row_of(int q) const { return (first_query + q) / group - first_row; }
};

__device__ inline Tile make_tile(const AttendArgs& args, Shared<AttentionRow> rows, int parts) {
  Tile tile;
  tile.group = args.heads / args.kv.kv_heads;
  tile.kv_head = static_cast<int>(blockIdx.y) / parts;
  tile.first_query = static_cast<int>(blockIdx.x) * kQueries;
  const int left = args.rows * tile.group - tile.first_query;
  tile.queries = left < kQueries ? left : kQueries;
  tile.first_row = tile.first_query / tile.group;
  tile.rows = (tile.first_query + tile.queries - 1) / tile.group - tile.first_row + 1;
  if (static_cast<int>(threadIdx.x) < tile.rows) {
    rows[static_cast<int>(threadIdx.x)] = args.row[tile.first_row + static_cast<int>(threadIdx.x)];
  }
  __syncthreads();
  for (int r = 0; r < tile.rows; ++r) {
    const AttentionRow row = rows[r];
    const int first = first_key(row, args.window);
    const bool none = r == 0;
    if (none) tile.table = row.page_table;
    tile.one_table = none || (tile.one_table && row.page_table == tile.table);
    tile.least_prefix = none || row.prefix < tile.least_prefix ? row.prefix : tile.least_prefix;
    tile.least_position =
        none || row.position < tile.least_position ? row.position : tile.least_position;
    tile.most_position =
        none || row.position > tile.most_position ? row.position : tile.most_position;
    tile.least_first = none || first < tile.least_first ? first : tile.least_first;
    tile.most_first = none || first > tile.most_first ? first : tile.most_first;
  }
  return tile;
}

/// Two floats as f16 pairs: nearest, and nearest to what is left.
__device__ __forceinline__ uint2 split_halves(float first, float second) {
  const uint32_t high_first = float_to_half_bits(first), high_second = float_to_half_bits(second);
  const float rest_first = first - half_bits_to_float(static_cast<uint16_t>(high_first));
  const float rest_second = second - half_bits_to_float(static_cast<uint16_t>(high_second));
  return make_uint2(high_first | high_second << 16,
                    float_to_half_bits(rest_first) |
                        static_cast<uint32_t>(float_to_half_bits(rest_second)) << 16);
}

/// The tile's queries as A registers: [step][high, low][lane]. Value 16 step + 4t + i of a query is
/// depth 2t + i for i < 2, 2t + 6 + i else: the order in which a lane reads K.
template <int kSteps>
__device__ void load_queries(const AttendArgs& args, const Tile& tile, Shared<uint4> q) {
  for (int i = static_cast<int>(threadIdx.x); i < kSteps * kWarp; i += kAttentionThreads) {
    const int step = i / kWarp, lane = i % kWarp;
    uint2 split[2][2] = {};  // [query g or g + 8][pair]
    for (int upper = 0; upper < 2; ++upper) {
      const int query = lane / 4 + 8 * upper;
      if (query >= tile.queries) continue;
      const int flat = tile.first_query + query;
      const size_t head = static_cast<size_t>(flat / tile.group) * args.heads +
                          tile.kv_head * tile.group + flat % tile.group;
      const float* x = args.q + head * args.kv.head_dim + step * 16 + lane % 4 * 4;
      split[upper][0] = split_halves(x[0], x[1]);
      split[upper][1] = split_halves(x[2], x[3]);
    }
    q[(step * 2) * kWarp + lane] =
        make_uint4(split[0][0].x, split[1][0].x, split[0][1].x, split[1][1].x);
    q[(step * 2 + 1) * kWarp + lane] =
        make_uint4(split[0][0].y, split[1][0].y, split[0][1].y, split[1][1].y);
  }
}

/// Rows that read a block of keys in the same places.
struct Class {
  uint32_t rows;  // bits, counted from the tile's first
  int place;      // of the lane's key; -1: not seen
  uint32_t seen;  // bits of the lanes whose key is seen
};

/// Calls body(class) for every class of the tile's rows, for the keys from `base` on. `places`:
/// (kQueries, kWarp); a lane reads only what it wrote, so that no barrier is needed.
template <class Body>
__device__ __forceinline__ void each_class(const AttendArgs& args, const Tile& tile,
                                           Shared<AttentionRow> rows, Shared<int> places, int base,
                                           const Body& body) {
  if (base > tile.most_position || base + kPageSlots <= tile.least_first) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool whole = tile.one_table && base + kPageSlots <= tile.least_prefix &&
                     base >= tile.most_first && base + kPageSlots <= tile.least_position + 1;
  uint32_t left = (1u << tile.rows) - 1;
  if (whole) {  // committed keys that all rows see: nearly always
    const int page = args.pages[tile.table + base / kPageSlots];
    return body(Class{left, page * kPageSlots + lane, kAllLanes});
  }
  for (int r = 0; r < tile.rows; ++r) {
    const AttentionRow row = rows[r];
    const int position = base + lane;
    const bool seen = position >= first_key(row, args.window) && position <= row.position;
    places[r * kWarp + lane] = seen ? place_of_key(args, row, position) : -1;
  }
  while (left != 0) {
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const int place = places[leader * kWarp + lane];
    uint32_t same = 0;
    for (int r = leader; r < tile.rows; ++r) {
      const int other = places[r * kWarp + lane];
      if (__all_sync(kAllLanes, other == place)) same |= 1u << r;
    }
    left &= ~same;
    const uint32_t seen = __ballot_sync(kAllLanes, place >= 0);
    if (seen != 0) body(Class{same, place, seen});
  }
}

/// K of four values, from 16 step + 4t on, for slots 4g..4g+3: a word for two slots.
struct KeyWords {
  uint2 value[4];
};

__device__ __forceinline__ KeyWords load_keys(const KvLayer& kv, int kv_head, int value, int lane,
                                              bool in_order, int origin,
                                              const int (&slot_place)[4]) {
  KeyWords words;
  const size_t row = static_cast<size_t>(kv_head) * kv.head_dim + value;
  COPPICE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (in_order) {
      const uint16_t* at = page_of(kv, origin) + (row + i) * kPageSlots + lane / 4 * 4;
      words.value[i] = load_as<uint2>(at);
      continue;
    }
    uint32_t half[4];
    COPPICE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int place = slot_place[j];
      half[j] = place < 0 ? 0 : page_of(kv, place)[(row + i) * kPageSlots + place % kPageSlots];
    }
    words.value[i] = make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16);
  }
  return words;
}

/// Half `j` of two pairs of words, side by side.
__device__ __forceinline__ uint32_t halves_at(uint2 first, uint2 second, int j) {
  return __byte_perm(j < 2 ? first.x : first.y, j < 2 ? second.x : second.y,
                     j % 2 == 0 ? 0x5410 : 0x7632);
}

/// Scores of one class: scores[j][c] of its rows, -infinity where the key is not seen.
template <int kSteps>
__device__ __forceinline__ void score(const AttendArgs& args, const Tile& tile, Shared<uint4> q,
                                      const Class& keys, float (&scores)[4][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, t = lane % 4;
  // In order within one page, as committed keys are: a lane's four slots are one load.
  const int first_seen = __ffs(static_cast<int>(keys.seen)) - 1;
  const int origin = __shfl_sync(kAllLanes, keys.place, first_seen) - first_seen;
  const bool in_order = __all_sync(kAllLanes, keys.place < 0 || keys.place == origin + lane) != 0 &&
                        origin % kPageSlots == 0;
  int slot_place[4];
  COPPICE_UNROLL
  for (int j = 0; j < 4; ++j) slot_place[j] = __shfl_sync(kAllLanes, keys.place, lane / 4 * 4 + j);

  [[maybe_unused]] constexpr int kStepsAtOnce = kSteps > 8 ? 2 : 4;  // as registers allow
  float sums[4][4] = {};
  COPPICE_UNROLL_BY(kStepsAtOnce)
  for (int step = 0; step < kSteps; ++step) {
    const KeyWords words =
        load_keys(args.kv, tile.kv_head, step * 16 + t * 4, lane, in_order, origin, slot_place);
    const uint4 high = q[(step * 2) * kWarp + lane];
    const uint4 low = q[(step * 2 + 1) * kWarp + lane];
    const uint32_t a_high[4] = {high.x, high.y, high.z, high.w};
    const uint32_t a_low[4] = {low.x, low.y, low.z, low.w};
    COPPICE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint32_t b0 = halves_at(words.value[0], words.value[1], j);
      const uint32_t b1 = halves_at(words.value[2], words.value[3], j);
      mma_f16(sums[j], a_high, b0, b1);
      mma_f16(sums[j], a_low, b0, b1);
    }
  }
  COPPICE_UNROLL
  for (int j = 0; j < 4; ++j) {
    COPPICE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const bool of_class = (keys.rows >> tile.row_of(lane / 4 + c / 2 * 8) & 1) != 0;
      const bool seen = (keys.seen >> (4 * (2 * t + c % 2) + j) & 1) != 0;
      if (of_class && seen) scores[j][c] = sums[j][c];
    }
  }
}

/// The word of `vector` that holds value i, as the low or high half of a word.
template <class Vector>
__device__ __forceinline__ uint32_t word_of(const Vector& vector, int i) {
  if constexpr (std::is_same_v<Vector, uint4>) {
    return i < 2 ? vector.x : i < 4 ? vector.y : i < 6 ? vector.z : vector.w;
  } else if constexpr (std::is_same_v<Vector, uint2>) {
    return i < 2 ? vector.x : vector.y;
  } else {
    return vector;
  }
}

/// values[c * kVector + i][..] += weights times V, for the class's rows.
template <int kHeadDim>
__device__ __forceinline__ void add_values(const AttendArgs& args, const Tile& tile, int part,
                                           const Class& keys, const float (&weights)[4][4],
                                           float (&values)[Sizes<kHeadDim>::kValues / 8][4]) {
  using Size = Sizes<kHeadDim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  uint32_t high[2][4], low[2][4];  // A registers of the two steps
  COPPICE_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float(&pair)[4] = weights[i / 4 * 2 + i % 4 / 2];
    const int upper = i % 2 * 2;  // query g or g + 8
    const uint2 split = split_halves(pair[upper] * kWeightUnit, pair[upper + 1] * kWeightUnit);
    high[i / 4][i % 4] = split.x;
    low[i / 4][i % 4] = split.y;
  }
  int place[8];
  COPPICE_UNROLL
  for (int u = 0; u < 8; ++u) place[u] = __shfl_sync(kAllLanes, keys.place, 8 * t + u);
  const bool lower_row = (keys.rows >> tile.row_of(g) & 1) != 0;
  const bool upper_row = (keys.rows >> tile.row_of(g + 8) & 1) != 0;

  COPPICE_UNROLL
  for (int chunk = 0; chunk < Size::kChunks; ++chunk) {
    typename Size::Vector v[8];
    COPPICE_UNROLL
    for (int u = 0; u < 8; ++u) {
      v[u] = {};
      if (place[u] < 0) continue;
      const size_t row =
          static_cast<size_t>(args.kv.kv_heads + tile.kv_head) * kPageSlots + place[u] % kPageSlots;
      v[u] = load_as<typename Size::Vector>(page_of(args.kv, place[u]) + row * kHeadDim +
                                            part * Size::kValues + (chunk * 8 + g) * Size::kVector);
    }
    COPPICE_UNROLL
    for (int i = 0; i < Size::kVector; ++i) {
      float(&old)[4] = values[chunk * Size::kVector + i];
      float sum[4] = {old[0], old[1], old[2], old[3]};
      COPPICE_UNROLL
      for (int s = 0; s < 2; ++s) {
        const uint32_t pick = i % 2 == 0 ? 0x5410 : 0x7632;
        const uint32_t b0 = __byte_perm(word_of(v[2 * s], i), word_of(v[2 * s + 4], i), pick);
        const uint32_t b1 = __byte_perm(word_of(v[2 * s + 1], i), word_of(v[2 * s + 5], i), pick);
        mma_f16(sum, high[s], b0, b1);
        mma_f16(sum, low[s], b0, b1);
      }
      old[0] = lower_row ? sum[0] : old[0];
      old[1] = lower_row ? sum[1] : old[1];
      old[2] = upper_row ? sum[2] : old[2];
      old[3] = upper_row ? sum[3] : old[3];
    }
  }
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
