// Attention kernels for every dispatch target; the contract is in attention.h.
// The loops that carry the cost are in attention_tiles-inl.h.
#include "kernels/cpu/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/simd.h"
// clang-format off: this order is Highway's
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// One call of AttentionKernels::attend: scores of the whole range, its softmax, its values.
struct RangePass {
  const Attention& op;
  RowTile tile;
  int kv_head;
  int range;
  const float* q;  // (rows of the tile, group, head_dim)
  const AttentionScratch& scratch;
  float* state;

  int head_dim = op.kv.head_dim;
  int group = op.heads / op.kv.kv_heads;

  float* scores_of(int row) const {
    return scratch.scores + static_cast<size_t>(row - tile.first) * group * kRangePositions;
  }
  bool is_wide(RowTile rows) const { return rows.count * group > kQueries; }

  // What to fetch while a block's keys or values are read: the range's keys, its values and the
  // next range's keys are one stream, and this is two blocks further on.
  Ahead ahead_of_keys(RowTile rows, int block) const {
    const int later = block + 2;
    const bool keys = later / kRangeBlocks == range;
    return keys ? keys_ahead(op, op.row[rows.first], kv_head, later)
                : values_ahead(op, op.row[rows.first], kv_head, later - kRangeBlocks);
  }
  Ahead ahead_of_values(RowTile rows, int block) const {
    const int later = block + 2;
    const bool values = later / kRangeBlocks == range;
    return values ? values_ahead(op, op.row[rows.first], kv_head, later)
                  : keys_ahead(op, op.row[rows.first], kv_head, later);
  }

  template <int B, class T>
  void score(RowTile rows, int block, const T* const* keys, const Ahead* ahead) const {
    const float* row_q = q + static_cast<size_t>(rows.first - tile.first) * group * head_dim;
    float* scores = scores_of(rows.first) + block % kRangeBlocks * kPageSlots;
    in_query_tiles(rows.count * group, [&](auto count, int first) {
      score_blocks<count(), B>(keys, row_q + first * head_dim, head_dim, ahead,
                               scores + first * kRangePositions);
    });
  }

  /// Rows that read a block in the same places: body(rows, lanes that some of them sees).
  template <class Body>
  void each_source(int block, const Body& body) const {
    const int limit = tile.first + tile.count;
    for (int first = tile.first, end = 0; first < limit; first = end) {
      end = end_of_shared_source(op, first, limit, block);
      const RowTile rows{first, end - first};
      const Lanes lanes = visible_lanes(op, rows, block * kPageSlots, kPageSlots);
      if (!lanes.empty()) body(rows, lanes);
    }
  }

  void score_block(int block) const {
    each_source(block, [&](RowTile rows, Lanes lanes) {
      const uint16_t* keys = locate_keys(op, rows, kv_head, block, lanes, scratch.gathered);
      const Ahead ahead = ahead_of_keys(rows, block);
      if (is_wide(rows)) {
        widen_keys(keys, head_dim, ahead, scratch.keys);
        const float* wide = scratch.keys;
        score<1>(rows, block, &wide, nullptr);
      } else {
        score<1>(rows, block, &keys, &ahead);
      }
    });
  }

  /// Two whole committed blocks at once, for as few rows as leave registers for it.
  bool score_pair(int block) const {
    if (is_wide(tile) || !is_committed(op, tile, block) || !is_committed(op, tile, block + 1)) {
      return false;
    }
    const uint16_t* keys[2];
    Ahead ahead[2];
    for (int b = 0; b < 2; ++b) {
      keys[b] = keys_at(op.kv, place_of_block(op, op.row[tile.first], block + b), kv_head);
      ahead[b] = ahead_of_keys(tile, block + b);
    }
    score<2>(tile, block, keys, ahead);
    return true;
  }

  void add_block(int block) const {
    each_source(block, [&](RowTile source, Lanes all) {
      std::array<const uint16_t*, kPageSlots> values;
      std::array<const float*, kPageSlots> wide_values;
      locate_values(op, source, kv_head, block, all, values.data());
      const bool wide = is_wide(source) || padded_head_dim(head_dim) != head_dim;
      const Ahead ahead = ahead_of_values(source, block);
      if (wide) {
        widen_values(values.data(), all, head_dim, ahead, scratch.values, wide_values.data());
      }
      const auto lanes_of = [&](int row) {
        return visible_lanes(op, {row, 1}, block * kPageSlots, kPageSlots);
      };
      for (int row = source.first, next = 0; row < source.first + source.count; row = next) {
        const Lanes lanes = lanes_of(row);
        next = row + 1;
        while (next < source.first + source.count && lanes_of(next) == lanes) ++next;
        if (lanes.empty()) continue;
        if (wide) {
          add({row, next - row}, block, lanes, wide_values.data(), Ahead());
        } else {
          add({row, next - row}, block, lanes, values.data(), ahead);
        }
      }
    });
  }

  template <class T>
  void add(RowTile rows, int block, Lanes lanes, const T* const* values, Ahead ahead) const {
    const size_t stride = attention_state_floats(head_dim);
    const float* weights = scores_of(rows.first) + block % kRangeBlocks * kPageSlots;
    float* states = state + static_cast<size_t>(rows.first - tile.first) * group * stride;
    in_query_tiles(rows.count * group, [&](auto count, int first) {
      add_values<count()>(values, lanes, head_dim, ahead, weights + first * kRangePositions,
                          states + first * stride);
    });
  }

  void run() const {
    reset_states(tile.count * group, head_dim, state);
    const int begin = range * kRangeBlocks, end = begin + kRangeBlocks;
    for (int block = begin; block < end;) {
      if (block + 1 < end && score_pair(block)) {
        block += 2;
      } else {
        score_block(block++);
      }
    }
    const size_t stride = attention_state_floats(head_dim);
    for (int row = tile.first; row < tile.first + tile.count; ++row) {
      const Lanes lanes = visible_lanes(op, {row, 1}, range * kRangePositions, kRangePositions);
      if (lanes.empty()) continue;
      for (int i = 0; i < group; ++i) {
        soften_range(lanes, scores_of(row) + i * kRangePositions,
                     state + (static_cast<size_t>(row - tile.first) * group + i) * stride);
      }
    }
    for (int block = begin; block < end; ++block) add_block(block);
  }
};

void attend(const Attention& op, RowTile tile, int kv_head, int range, const float* q,
            const AttentionScratch& scratch, float* state) {
  RangePass{op, tile, kv_head, range, q + query_offset(op, tile.first, kv_head), scratch, state}
      .run();
}

void merge(int queries, int head_dim, const float* part, float* total) {
  const Floats d;
  const size_t stride = attention_state_floats(head_dim);
  for (int i = 0; i < queries; ++i, part += stride, total += stride) {
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    if (part[0] == kNone) continue;
    if (total[0] == kNone) {
      std::memcpy(total, part, stride * sizeof(float));
      continue;
    }
    const float most = std::max(part[0], total[0]);
    const FloatVec scale_part = exp2_nonpositive(hn::Set(d, part[0] - most));
    const FloatVec scale_total = exp2_nonpositive(hn::Set(d, total[0] - most));
    total[0] = most;
    for (size_t j = kStateHeader; j < stride; j += kLanes) {
      const FloatVec old = hn::Mul(hn::Load(d, total + j), scale_total);
      hn::Store(hn::MulAdd(hn::Load(d, part + j), scale_part, old), d, total + j);
    }
  }
}

void finish(const Attention& op, RowTile tile, int kv_head, const float* state) {
  const int head_dim = op.kv.head_dim;
  const int group = op.heads / op.kv.kv_heads;
  const size_t stride = attention_state_floats(head_dim);
  for (int i = 0; i < tile.count * group; ++i, state += stride) {
    HWY_ALIGN float sums[kPageSlots];
    std::memcpy(sums, state + kStateHeader, sizeof(sums));
    const float inverse = 1.0f / fold_lanes(sums);
    const int row = tile.first + i / group;
    const int head = kv_head * group + i % group;
    float* out = op.out + (static_cast<size_t>(row) * op.heads + head) * head_dim;
    for (int c = 0; c < head_dim; ++c) out[c] = state[kStateValues + c] * inverse;
  }
}

/// out = rotary(norm(x)) * scale for one head.
void rotate_head(const Attention& op, const float* HWY_RESTRICT x, const float* norm, int position,
                 float scale, float* HWY_RESTRICT out) {
  const int head_dim = op.kv.head_dim;
  const float* table = op.rotary + static_cast<size_t>(position) * head_dim;  // (head_dim/2, 2)
  float normed[kLargestHeadDim];
  if (norm != nullptr) {
    const float mean = sum_of_squares(x, head_dim) / static_cast<float>(head_dim);
    const float factor = 1.0f / std::sqrt(mean + op.norm_eps);
    for (int c = 0; c < head_dim; ++c) normed[c] = x[c] * factor * norm[c];
    x = normed;
  }
  const int half = head_dim / 2;
  if (op.style == RotaryStyle::adjacent) {
    for (int i = 0; i < half; ++i) {
      const float first = x[2 * i], second = x[2 * i + 1];
      out[2 * i] = (first * table[2 * i] - second * table[2 * i + 1]) * scale;
      out[2 * i + 1] = (first * table[2 * i + 1] + second * table[2 * i]) * scale;
    }
  } else {
    for (int i = 0; i < half; ++i) {
      const float first = x[i], second = x[i + half];
      out[i] = (first * table[2 * i] - second * table[2 * i + 1]) * scale;
      out[i + half] = (first * table[2 * i + 1] + second * table[2 * i]) * scale;
    }
  }
}

void prepare(const Attention& op, int row, int kv_head, float* q) {
  constexpr float kLog2e = 1.44269504f;
  const int head_dim = op.kv.head_dim;
  const int group = op.heads / op.kv.kv_heads;
  const int position = op.row[row].position;
  const float* in = op.qkv + static_cast<size_t>(row) * (op.heads + 2 * op.kv.kv_heads) * head_dim;
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    rotate_head(op, in + head * head_dim, op.q_norm, position, op.scale * kLog2e,
                q + query_offset(op, row, kv_head) + (head - kv_head * group) * head_dim);
  }
  float key[kLargestHeadDim];
  uint16_t halves[kLargestHeadDim];
  rotate_head(op, in + (op.heads + kv_head) * head_dim, op.k_norm, position, 1.0f, key);
  round_to_halves(key, head_dim, halves);
  const int32_t place = place_of_slot(op, op.row[row], op.row[row].slot);
  uint16_t* keys = keys_at(op.kv, place, kv_head);
  for (int c = 0; c < head_dim; ++c) keys[c * kPageSlots] = halves[c];
  round_to_halves(in + (op.heads + op.kv.kv_heads + kv_head) * head_dim, head_dim,
                  values_at(op.kv, place, kv_head));
}

const AttentionKernels* get_attention_kernels() {
  static constexpr AttentionKernels kKernels{prepare, attend, merge, finish};
  return &kKernels;
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(get_attention_kernels);

const AttentionKernels& attention_kernels(int64_t target) {
  return *HWY_DISPATCH_TABLE(get_attention_kernels)[dispatch_index(target)]();
}

}  // namespace coppice::cpu
#endif
