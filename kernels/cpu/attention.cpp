// Attention kernels for every dispatch target; the contract is in attention.h.
//
// Two loops carry the cost: scores (queries x keys of a block, K transposed so that keys lie along
// the lanes) and values (queries x head_dim). Both keep a tile of kQueries queries in registers and
// read K and V once for all of them.
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
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// Queries in a register tile: accumulators, one key vector and the queries fill AVX2's 16
// registers.
constexpr int kQueries = HWY_TARGET == HWY_AVX2 ? 3 : 4;
constexpr int kBlockVectors = kPageSlots / kLanes;
static_assert(kSumLanes == kPageSlots);

/// scores[r][j] = q[r] . K[j], each one chain of fused multiply-adds over the channels. Keys read
/// straight from a page come from memory: the next block's lines are asked for on the way.
template <int R, class T>
HWY_INLINE void score_block(const T* HWY_RESTRICT keys, const float* const* q, int head_dim,
                            [[maybe_unused]] PageHead ahead, float* HWY_RESTRICT scores) {
  const Floats d;
  FloatVec sum[R][kBlockVectors];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kBlockVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int c = 0; c < head_dim; ++c) {
    if constexpr (std::is_same_v<T, uint16_t>) prefetch_lines(ahead, c);
    FloatVec query[R];
    for (int r = 0; r < R; ++r) query[r] = hn::Set(d, q[r][c]);
    for (int v = 0; v < kBlockVectors; ++v) {
      const FloatVec key = load_floats(keys + c * kPageSlots + v * kLanes);
      for (int r = 0; r < R; ++r) sum[r][v] = hn::MulAdd(query[r], key, sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kBlockVectors; ++v) {
      hn::Store(sum[r][v], d, scores + r * kPageSlots + v * kLanes);
    }
  }
}

/// Turns a block's scores into weights in place and brings the state's maximum and lane sums up to
/// date; lanes outside `lanes` get weight 0 whatever their score. Returns the factor by which the
/// values gathered so far shrink.
HWY_INLINE float soften_block(Lanes lanes, float* HWY_RESTRICT scores, float* HWY_RESTRICT state) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const FloatVec hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVec score[kBlockVectors];
  FloatVec most = hn::Set(d, state[0]);
  for (int v = 0; v < kBlockVectors; ++v) {
    score[v] = hn::Load(d, scores + v * kLanes);
    const auto lane = hn::Iota(di, static_cast<int32_t>(v * kLanes));
    const auto seen =
        hn::And(hn::Gt(lane, hn::Set(di, lanes.begin - 1)), hn::Lt(lane, hn::Set(di, lanes.end)));
    score[v] = hn::IfThenElse(hn::RebindMask(d, seen), score[v], hidden);
    most = hn::Max(most, score[v]);
  }
  most = hn::MaxOfLanes(d, most);
  const FloatVec shrink = exp2_nonpositive(hn::Sub(hn::Set(d, state[0]), most));
  float* sums = state + kStateHeader;
  for (int v = 0; v < kBlockVectors; ++v) {
    const FloatVec weight = exp2_nonpositive(hn::Sub(score[v], most));
    hn::Store(weight, d, scores + v * kLanes);
    hn::Store(hn::MulAdd(hn::Load(d, sums + v * kLanes), shrink, weight), d, sums + v * kLanes);
  }
  state[0] = hn::GetLane(most);
  return hn::GetLane(shrink);
}

/// C vectors of channels: value[r] = value[r] * shrink[r] + sum over the lanes of weight[r][j]
/// V[j].
template <int R, int C, class T>
HWY_INLINE void add_channels(const T* const* values, Lanes lanes, const float* HWY_RESTRICT weights,
                             const float* shrink, float* const* state, int channel) {
  const Floats d;
  FloatVec sum[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      sum[r][c] = hn::Mul(hn::Load(d, state[r] + kStateValues + channel + c * kLanes),
                          hn::Set(d, shrink[r]));
    }
  }
  for (int j = lanes.begin; j < lanes.end; ++j) {
    const T* HWY_RESTRICT row = values[j] + channel;
    FloatVec weight[R];
    for (int r = 0; r < R; ++r) weight[r] = hn::Set(d, weights[r * kPageSlots + j]);
    for (int c = 0; c < C; ++c) {
      const FloatVec value = load_floats(row + c * kLanes);
      for (int r = 0; r < R; ++r) sum[r][c] = hn::MulAdd(weight[r], value, sum[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      hn::Store(sum[r][c], d, state[r] + kStateValues + channel + c * kLanes);
    }
  }
}

/// One block for R queries that see the same lanes.
template <int R, class T>
HWY_NOINLINE void attend_queries(const T* keys, const T* const* values, Lanes lanes, int head_dim,
                                 const float* const* q, PageHead ahead, float* const* state) {
  HWY_ALIGN float weights[R * kPageSlots];
  float shrink[R];
  score_block<R>(keys, q, head_dim, ahead, weights);
  for (int r = 0; r < R; ++r) {
    shrink[r] = soften_block(lanes, weights + r * kPageSlots, state[r]);
  }
  constexpr int kChunk = 4;
  constexpr int kStep = kChunk * static_cast<int>(kLanes);
  const int padded = padded_head_dim(head_dim);
  int channel = 0;
  for (; channel + kStep <= padded; channel += kStep) {
    add_channels<R, kChunk>(values, lanes, weights, shrink, state, channel);
  }
  for (; channel < padded; channel += static_cast<int>(kLanes)) {
    add_channels<R, 1>(values, lanes, weights, shrink, state, channel);
  }
}

template <class T>
void attend_tile(int queries, const T* keys, const T* const* values, Lanes lanes, int head_dim,
                 const float* const* q, PageHead ahead, float* const* state) {
  static_assert(kQueries <= 4);
  switch (queries) {
    case 1:
      return attend_queries<1>(keys, values, lanes, head_dim, q, ahead, state);
    case 2:
      return attend_queries<2>(keys, values, lanes, head_dim, q, ahead, state);
    case 3:
      return attend_queries<3>(keys, values, lanes, head_dim, q, ahead, state);
    default:
      return attend_queries<kQueries>(keys, values, lanes, head_dim, q, ahead, state);
  }
}

/// The queries of rows that see the same lanes of one block, kQueries at a time.
template <class T>
void attend_rows(const Attention& op, RowTile rows, int kv_head, const T* keys,
                 const T* const* values, Lanes lanes, const float* q, PageHead ahead,
                 float* state) {
  const int head_dim = op.kv.head_dim;
  const int group = op.heads / op.kv.kv_heads;
  const int queries = rows.count * group;
  const size_t stride = attention_state_floats(head_dim);
  for (int begin = 0; begin < queries; begin += kQueries) {
    const int count = std::min(kQueries, queries - begin);
    const float* tile_q[kQueries];
    float* tile_state[kQueries];
    for (int i = 0; i < count; ++i) {
      const int row = rows.first + (begin + i) / group;
      const int head = kv_head * group + (begin + i) % group;
      tile_q[i] = q + (static_cast<size_t>(row) * op.heads + head) * head_dim;
      tile_state[i] = state + (begin + i) * stride;
    }
    attend_tile(count, keys, values, lanes, head_dim, tile_q, ahead, tile_state);
  }
}

/// K and V of a block as floats, where enough queries share them or a page's rows are too short to
/// be read by whole vectors.
void widen(const BlockView& block, Lanes lanes, int head_dim, PageHead ahead,
           const AttentionScratch& scratch, const float** values) {
  const Floats d;
  for (int c = 0; c < head_dim; ++c) prefetch_lines(ahead, c);
  for (int i = 0; i < head_dim * kPageSlots; i += static_cast<int>(kLanes)) {
    hn::Store(load_floats(block.keys + i), d, scratch.keys + i);
  }
  const int padded = padded_head_dim(head_dim);
  for (int j = lanes.begin; j < lanes.end; ++j) {
    float* out = scratch.values + j * padded;
    int c = 0;
    for (; c + static_cast<int>(kLanes) <= head_dim; c += static_cast<int>(kLanes)) {
      hn::Store(load_floats(block.values[j] + c), d, out + c);
    }
    for (; c < padded; ++c) out[c] = c < head_dim ? half_to_float(block.values[j][c]) : 0.0f;
    values[j] = out;
  }
}

void attend(const Attention& op, RowTile tile, int kv_head, int range, const float* q,
            const AttentionScratch& scratch, float* state) {
  const int head_dim = op.kv.head_dim;
  const int group = op.heads / op.kv.kv_heads;
  const size_t stride = attention_state_floats(head_dim);
  reset_states(tile.count * group, head_dim, state);
  for (int block = range * kRangeBlocks; block < (range + 1) * kRangeBlocks; ++block) {
    for (int first = tile.first, end = 0; first < tile.first + tile.count; first = end) {
      end = end_of_shared_source(op, first, tile.first + tile.count, block);
      const Lanes all = visible_lanes(op, {first, end - first}, block);
      if (all.empty()) continue;
      BlockView view;
      locate_block(op, {first, end - first}, kv_head, block, all, scratch.gathered, &view);
      const bool wide = (end - first) * group > kQueries || padded_head_dim(head_dim) != head_dim;
      std::array<const float*, kPageSlots> values;
      const PageHead ahead = page_head(op, first, kv_head, block + 1);
      if (wide) widen(view, all, head_dim, ahead, scratch, values.data());
      for (int row = first, next = 0; row < end; row = next) {
        const Lanes lanes = visible_lanes(op, {row, 1}, block);
        next = row + 1;
        while (next < end && visible_lanes(op, {next, 1}, block) == lanes) ++next;
        if (lanes.empty()) continue;
        const RowTile rows{row, next - row};
        float* row_state = state + (row - tile.first) * group * stride;
        if (wide) {
          attend_rows(op, rows, kv_head, scratch.keys, values.data(), lanes, q, ahead, row_state);
        } else {
          attend_rows(op, rows, kv_head, view.keys, view.values.data(), lanes, q, ahead, row_state);
        }
      }
    }
  }
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
                q + (static_cast<size_t>(row) * op.heads + head) * head_dim);
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
