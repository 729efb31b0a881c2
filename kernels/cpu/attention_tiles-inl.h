// The loops of attention that carry its cost: scores (queries x keys, K transposed so that keys lie
// along the lanes), their softmax, and values (queries x head_dim). A tile of up to kQueries
// queries stays in registers and reads K and V once. Included once per target, as Highway's -inl.h
// files are.
#if defined(COPPICE_CPU_ATTENTION_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_CPU_ATTENTION_TILES_INL_H
#undef COPPICE_CPU_ATTENTION_TILES_INL_H
#else
#define COPPICE_CPU_ATTENTION_TILES_INL_H
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// A register tile is R queries by as many vectors as leave registers for keys and weights; K and V
// are converted on the way, once for its queries.
constexpr int kAccumulators = HWY_TARGET == HWY_AVX3 ? 24 : 12;
constexpr int kQueries = kAccumulators / 2;
constexpr int kBlockVectors = kPageSlots / kLanes;
static_assert(kSumLanes == kPageSlots);

/// Vectors in a register tile of R queries: a power of two, up to `most`.
template <int R>
constexpr int tile_vectors(int most) {
  int vectors = most;
  while (vectors * R > kAccumulators) vectors /= 2;
  return vectors;
}

/// scores[r][j] = q[r] . K[j] for V vectors of keys in each of B blocks, each score one chain of
/// fused multiply-adds over the channels. Keys come from memory: lines needed soon are asked for on
/// the way.
template <int R, int B, int V>
HWY_INLINE void score_keys(const uint16_t* const* keys, const float* HWY_RESTRICT q, int head_dim,
                           const Ahead* ahead, float* HWY_RESTRICT scores, size_t block_stride) {
  const Floats d;
  FloatVec sum[R][B * V];
  repeat<R>([&](auto r) COPPICE_UNROLLED {
    repeat<B * V>([&](auto v) COPPICE_UNROLLED { sum[r][v] = hn::Zero(d); });
  });
  for (int c = 0; c < head_dim; ++c) {
    FloatVec key[B * V];
    repeat<B>([&](auto b) COPPICE_UNROLLED {
      ahead[b].fetch(c * kPageSlots);
      repeat<V>([&](auto v) COPPICE_UNROLLED {
        key[b * V + v] = load_floats(keys[b] + c * kPageSlots + v * kLanes);
      });
    });
    repeat<R>([&](auto r) COPPICE_UNROLLED {
      const FloatVec query = hn::Set(d, q[r * head_dim + c]);
      repeat<B * V>([&](auto v)
                        COPPICE_UNROLLED { sum[r][v] = hn::MulAdd(query, key[v], sum[r][v]); });
    });
  }
  repeat<R>([&](auto r) COPPICE_UNROLLED {
    repeat<B * V>([&](auto v) COPPICE_UNROLLED {
      hn::Store(sum[r][v], d, scores + v / V * block_stride + r * kPageSlots + v % V * kLanes);
    });
  });
}

/// The scores of R queries, q (R, head_dim), for one or two blocks: (blocks, R, kPageSlots), blocks
/// block_stride apart.
template <int R>
HWY_NOINLINE void score_blocks(const uint16_t* const* keys, int blocks, const float* q,
                               int head_dim, const Ahead* ahead, float* scores,
                               size_t block_stride) {
  constexpr int kVectors = tile_vectors<R>(2 * kBlockVectors);
  if constexpr (kVectors > kBlockVectors) {
    if (blocks == 2) {
      return score_keys<R, 2, kBlockVectors>(keys, q, head_dim, ahead, scores, block_stride);
    }
  }
  constexpr int kStrip = kVectors < kBlockVectors ? kVectors : kBlockVectors;
  for (int b = 0; b < blocks; ++b) {
    for (int lane = 0; lane < kPageSlots; lane += kStrip * static_cast<int>(kLanes)) {
      const uint16_t* strip = keys[b] + lane;
      score_keys<R, 1, kStrip>(&strip, q, head_dim, ahead + b, scores + b * block_stride + lane,
                               block_stride);
    }
  }
}

/// Turns one query's scores of a range into weights in place, starting its state: maximum and lane
/// sums. Lanes outside `lanes` get weight 0 whatever their score; blocks outside stay unread.
void soften_range(Lanes lanes, float* HWY_RESTRICT scores, size_t block_stride,
                  float* HWY_RESTRICT state) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const FloatVec hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int begin = lanes.begin / kPageSlots * kPageSlots;
  const int end = (lanes.end + kPageSlots - 1) / kPageSlots * kPageSlots;
  const auto lane = hn::Iota(di, 0);
  FloatVec most[kBlockVectors], sum[kBlockVectors];
  repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
    most[v] = hidden;
    sum[v] = hn::Zero(d);
  });
  for (int j = begin; j < end; j += kPageSlots) {
    const bool cut = j < lanes.begin || j + kPageSlots > lanes.end;
    float* block = scores + j / kPageSlots * block_stride;
    repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
      FloatVec score = hn::Load(d, block + v * kLanes);
      if (cut) {
        const int first = j + v * static_cast<int>(kLanes);
        const auto seen = hn::And(hn::Gt(lane, hn::Set(di, lanes.begin - first - 1)),
                                  hn::Lt(lane, hn::Set(di, lanes.end - first)));
        score = hn::IfThenElse(hn::RebindMask(d, seen), score, hidden);
        hn::Store(score, d, block + v * kLanes);
      }
      most[v] = hn::Max(most[v], score);
    });
  }
  repeat<kBlockVectors - 1>([&](auto v)
                                COPPICE_UNROLLED { most[0] = hn::Max(most[0], most[v + 1]); });
  const FloatVec maximum = hn::MaxOfLanes(d, most[0]);
  for (int j = begin; j < end; j += kPageSlots) {
    repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
      float* score = scores + j / kPageSlots * block_stride + v * kLanes;
      const FloatVec weight = exp2_nonpositive(hn::Sub(hn::Load(d, score), maximum));
      hn::Store(weight, d, score);
      sum[v] = hn::Add(sum[v], weight);
    });
  }
  state[0] = hn::GetLane(maximum);
  repeat<kBlockVectors>(
      [&](auto v) COPPICE_UNROLLED { hn::Store(sum[v], d, state + kStateHeader + v * kLanes); });
}

/// V of some positions of a range, for queries that see all of them.
struct RangeValues {
  Lanes lanes;
  const uint16_t* const* at;  // at[j]: (head_dim)
  const Ahead* ahead;         // (kRangeBlocks)
};

/// C vectors of channels: value[r] += sum over the lanes of weight[r][j] V[j]. Values come from
/// memory, as keys do. kWhole: no vector reaches beyond head_dim.
template <int R, int C, bool kWhole>
HWY_INLINE void add_channels(const RangeValues& values, const float* HWY_RESTRICT weights,
                             size_t block_stride, int head_dim, int channel,
                             float* HWY_RESTRICT state) {
  const Floats d;
  const size_t stride = attention_state_floats(head_dim);
  FloatVec sum[R][C];
  const auto each = [&](const auto& body) COPPICE_UNROLLED {
    repeat<R>([&](auto r) COPPICE_UNROLLED {
      repeat<C>([&](auto c) COPPICE_UNROLLED {
        body(sum[r][c], state + r * stride + kStateValues + channel + c * kLanes);
      });
    });
  };
  const auto load = [&](const uint16_t* from) COPPICE_UNROLLED {
    if constexpr (kWhole) return load_floats(from);
    HWY_ALIGN uint16_t part[kLanes] = {};
    std::memcpy(part, from, sizeof(uint16_t) * (head_dim - channel));
    return load_floats(part);
  };
  each([&](FloatVec& v, const float* from) COPPICE_UNROLLED { v = hn::Load(d, from); });
  for (int j = values.lanes.begin; j < values.lanes.end;) {
    const int block = j / kPageSlots, start = block * kPageSlots;
    const int end = std::min(start + kPageSlots, values.lanes.end);
    const Ahead ahead = values.ahead[block];
    const float* HWY_RESTRICT weight = weights + block * block_stride - start;
    for (; j < end; ++j) {
      constexpr int kLine = 64 / sizeof(uint16_t);
      for (int c = 0; c < C * static_cast<int>(kLanes); c += kLine) {
        ahead.fetch((j - start) * head_dim + channel + c);
      }
      FloatVec value[C];
      repeat<C>([&](auto c)
                    COPPICE_UNROLLED { value[c] = load(values.at[j] + channel + c * kLanes); });
      repeat<R>([&](auto r) COPPICE_UNROLLED {
        const FloatVec w = hn::Set(d, weight[r * kPageSlots + j]);
        repeat<C>([&](auto c) COPPICE_UNROLLED { sum[r][c] = hn::MulAdd(w, value[c], sum[r][c]); });
      });
    }
  }
  each([&](const FloatVec& v, float* to) COPPICE_UNROLLED { hn::Store(v, d, to); });
}

/// Adds weighted values to R queries' states. weights: (blocks, R, kPageSlots), blocks block_stride
/// apart.
template <int R>
HWY_NOINLINE void add_values(const RangeValues& values, const float* weights, size_t block_stride,
                             int head_dim, float* state) {
  constexpr int kVectors = tile_vectors<R>(4);
  constexpr int kVector = static_cast<int>(kLanes), kStep = kVectors * kVector;
  int channel = 0;
  for (; channel + kStep <= head_dim; channel += kStep) {
    add_channels<R, kVectors, true>(values, weights, block_stride, head_dim, channel, state);
  }
  for (; channel + kVector <= head_dim; channel += kVector) {
    add_channels<R, 1, true>(values, weights, block_stride, head_dim, channel, state);
  }
  if (channel < head_dim) {
    add_channels<R, 1, false>(values, weights, block_stride, head_dim, channel, state);
  }
}

template <int R, class Body>
HWY_INLINE void with_count(int count, const Body& body) {
  if constexpr (R > 1) {
    if (count < R) return with_count<R - 1>(count, body);
  }
  body(std::integral_constant<int, R>());
}

/// body(std::integral_constant<int, n>, first) over `queries` queries, in the fewest tiles of at
/// most kQueries, which are as even as can be.
template <class Body>
HWY_INLINE void in_query_tiles(int queries, const Body& body) {
  const int tiles = (queries + kQueries - 1) / kQueries;
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = queries * tile / tiles, end = queries * (tile + 1) / tiles;
    with_count<kQueries>(end - first, [&](auto count) { body(count, first); });
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
