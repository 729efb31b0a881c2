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
  int queries = tile.count * group;
  int first_block = range * kRangeBlocks;
  int start = range * kRangePositions;
  const AttentionRow& front = op.row[tile.first];  // all rows share its page table
  size_t block_stride = static_cast<size_t>(queries) * kPageSlots;
  Lanes seen = visible_lanes(op, tile, start, kRangePositions);
  Lanes spanned{seen.begin / kPageSlots, (seen.end + kPageSlots - 1) / kPageSlots};  // blocks

  float* scores_of(int row, int block) const {
    return scratch.scores + block * block_stride + (row - tile.first) * group * kPageSlots;
  }

  // What to fetch while a block is read: the range's keys, its values and the next range's keys are
  // one stream of blocks, and this is two further on.
  Ahead ahead_of(int stream_block) const {
    const int count = spanned.end - spanned.begin;
    const int later = stream_block + std::min(2, count);
    const int first = first_block + spanned.begin;
    if (later < count) return keys_ahead(op, front, kv_head, first + later);
    if (later < 2 * count) return values_ahead(op, front, kv_head, first + later - count);
    return keys_ahead(op, front, kv_head, first_block + kRangeBlocks + later - 2 * count);
  }
  Ahead ahead_of_keys(int block) const { return ahead_of(block - spanned.begin); }
  Ahead ahead_of_values(int block) const {
    return ahead_of(block + spanned.end - 2 * spanned.begin);
  }

  void score(const uint16_t* const* keys, int blocks, const Ahead* ahead, float* scores) const {
    in_query_tiles(queries, [&](auto count, int first) {
      score_blocks<count()>(keys, blocks, q + first * head_dim, head_dim, ahead,
                            scores + first * kPageSlots, block_stride);
    });
  }

  /// Scores of the range's blocks first..end-1, whose keys all stand in the slots of their
  /// positions.
  void score_in_place(int first, int end) const {
    for (int block = first; block < end; block += 2) {
      const uint16_t* keys[2];
      Ahead ahead[2];
      const int blocks = std::min(2, end - block);
      for (int b = 0; b < blocks; ++b) {
        keys[b] = keys_at(op.kv, place_of_block(op, front, first_block + block + b), kv_head);
        ahead[b] = ahead_of_keys(block + b);
      }
      score(keys, blocks, ahead, scores_of(tile.first, block));
    }
  }

  /// Scores of a block whose keys stand anywhere: every query meets the whole of every page, and
  /// takes its own keys' scores from it.
  void score_displaced(int block) const {
    const int position = start + block * kPageSlots;
    for (int page = -1; (page = next_page(op, tile, first_block + block, page)) >= 0;) {
      const uint16_t* keys = keys_at(op.kv, place_of_block(op, front, page), kv_head);
      const Ahead ahead;
      score(&keys, 1, &ahead, scratch.page_scores);
      for (int row = tile.first; row < tile.first + tile.count; ++row) {
        take_scores(row, visible_lanes(op, {row, 1}, position, kPageSlots), position, page);
      }
    }
  }
  void take_scores(int row, Lanes lanes, int position, int page) const {
    const float* from = scratch.page_scores + (row - tile.first) * group * kPageSlots;
    float* to = scores_of(row, (position - start) / kPageSlots);
    const int displaced = std::clamp(op.row[row].prefix - position, lanes.begin, lanes.end);
    if (page == position / kPageSlots && lanes.begin < displaced) {
      for (int i = 0; i < group * kPageSlots; i += kPageSlots) {
        std::copy(from + i + lanes.begin, from + i + displaced, to + i + lanes.begin);
      }
    }
    for (int lane = displaced; lane < lanes.end; ++lane) {
      const int32_t slot = slot_of(op, op.row[row], position + lane);
      if (slot / kPageSlots != page) continue;
      for (int i = 0; i < group * kPageSlots; i += kPageSlots) {
        to[i + lane] = from[i + slot % kPageSlots];
      }
    }
  }

  void add(RowTile rows, const RangeValues& values) const {
    if (values.lanes.empty()) return;
    const size_t stride = attention_state_floats(head_dim);
    float* states = state + static_cast<size_t>(rows.first - tile.first) * group * stride;
    in_query_tiles(rows.count * group, [&](auto count, int first) {
      add_values<count()>(values, scores_of(rows.first, 0) + first * kPageSlots, block_stride,
                          head_dim, states + first * stride);
    });
  }

  /// Values of the positions that all rows find in the same places, for all rows together, and
  /// those before and behind them row by row.
  void add_all() const {
    std::array<const uint16_t*, kRangePositions> at;
    std::array<Ahead, kRangeBlocks> ahead, none{};
    const Lanes shared = shared_lanes(op, tile, start, kRangePositions);
    for (int block = spanned.begin; block < spanned.end; ++block) {
      ahead[block] = ahead_of_values(block);
    }
    const auto add_own = [&](int row, Lanes lanes) {
      for (int j = lanes.begin; j < lanes.end; ++j) {
        at[j] = values_at(op.kv, place_of(op, op.row[row], start + j), kv_head);
      }
      add({row, 1}, {lanes, at.data(), none.data()});
    };
    const auto each_row = [&](const auto& body) {
      for (int row = tile.first; row < tile.first + tile.count; ++row) {
        body(row, visible_lanes(op, {row, 1}, start, kRangePositions));
      }
    };
    each_row([&](int row, Lanes lanes) {
      add_own(row, {lanes.begin, std::min(lanes.end, shared.begin)});
    });
    for (int j = shared.begin; j < shared.end; ++j) {
      const int32_t page = place_of_block(op, front, first_block + j / kPageSlots);
      at[j] = values_at(op.kv, page + j % kPageSlots, kv_head);
    }
    add(tile, {shared, at.data(), ahead.data()});
    each_row([&](int row, Lanes lanes) {
      add_own(row, {std::max(lanes.begin, shared.end), lanes.end});
    });
  }

  void run() const {
    reset_states(queries, head_dim, state);
    if (seen.empty()) return;
    const int in_place = std::clamp(first_displaced(op, tile) / kPageSlots - first_block,
                                    spanned.begin, spanned.end);
    score_in_place(spanned.begin, in_place);
    for (int block = in_place; block < spanned.end; ++block) score_displaced(block);
    const size_t stride = attention_state_floats(head_dim);
    for (int row = tile.first; row < tile.first + tile.count; ++row) {
      const Lanes lanes = visible_lanes(op, {row, 1}, start, kRangePositions);
      if (lanes.empty()) continue;
      for (int i = 0; i < group; ++i) {
        soften_range(lanes, scores_of(row, 0) + i * kPageSlots, block_stride,
                     state + (static_cast<size_t>(row - tile.first) * group + i) * stride);
      }
    }
    add_all();
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

const float* heads_of(const Attention& op, int row, int head) {
  const size_t heads = static_cast<size_t>(op.heads) + 2 * op.kv.kv_heads;
  return op.qkv + (row * heads + head) * op.kv.head_dim;
}

void prepare_queries(const Attention& op, int row, int kv_head, float* q) {
  constexpr float kLog2e = 1.44269504f;
  const int group = op.heads / op.kv.kv_heads;
  q += query_offset(op, row, kv_head);
  for (int i = 0; i < group; ++i) {
    rotate_head(op, heads_of(op, row, kv_head * group + i), op.q_norm, op.row[row].position,
                op.scale * kLog2e, q + i * op.kv.head_dim);
  }
}

void store_kv(const Attention& op, int row, int kv_head) {
  const int head_dim = op.kv.head_dim;
  float key[kLargestHeadDim];
  uint16_t halves[kLargestHeadDim];
  rotate_head(op, heads_of(op, row, op.heads + kv_head), op.k_norm, op.row[row].position, 1.0f,
              key);
  round_to_halves(key, head_dim, halves);
  const int32_t place = place_of_slot(op, op.row[row], op.row[row].slot);
  uint16_t* keys = keys_at(op.kv, place, kv_head);
  for (int c = 0; c < head_dim; ++c) keys[c * kPageSlots] = halves[c];
  round_to_halves(heads_of(op, row, op.heads + op.kv.kv_heads + kv_head), head_dim,
                  values_at(op.kv, place, kv_head));
}

const AttentionKernels* get_attention_kernels() {
  static constexpr AttentionKernels kKernels{prepare_queries, store_kv, attend, merge, finish};
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
