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

#include <limits>
#include <type_traits>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// Queries in a register tile: accumulators, key vectors and queries fill the registers.
constexpr int kQueries = HWY_TARGET == HWY_AVX2 ? 3 : HWY_TARGET == HWY_AVX3 ? 8 : 4;
constexpr int kAccumulators = HWY_TARGET == HWY_AVX3 ? 16 : 12;
constexpr int kBlockVectors = kPageSlots / kLanes;
static_assert(kSumLanes == kPageSlots);

/// scores[r][j] = q[r] . K[j] for B blocks of keys that follow each other, each score one chain of
/// fused multiply-adds over the channels. q: (R, head_dim); scores: R rows of a range. Keys read
/// straight from a page come from memory: lines needed soon are asked for on the way.
template <int R, int B, class T>
HWY_NOINLINE void score_blocks(const T* const* keys, const float* HWY_RESTRICT q, int head_dim,
                               [[maybe_unused]] const Ahead* ahead, float* HWY_RESTRICT scores) {
  const Floats d;
  FloatVec sum[R][B * kBlockVectors];
  repeat<R>([&](auto r) COPPICE_UNROLLED {
    repeat<B * kBlockVectors>([&](auto v) COPPICE_UNROLLED { sum[r][v] = hn::Zero(d); });
  });
  for (int c = 0; c < head_dim; ++c) {
    repeat<B>([&](auto b) COPPICE_UNROLLED {
      if constexpr (std::is_same_v<T, uint16_t>) ahead[b].fetch(c * kPageSlots);
      repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
        const FloatVec key = load_floats(keys[b] + c * kPageSlots + v * kLanes);
        repeat<R>([&](auto r) COPPICE_UNROLLED {
          FloatVec& s = sum[r][b * kBlockVectors + v];
          s = hn::MulAdd(hn::Set(d, q[r * head_dim + c]), key, s);
        });
      });
    });
  }
  repeat<R>([&](auto r) COPPICE_UNROLLED {
    repeat<B * kBlockVectors>([&](auto v) COPPICE_UNROLLED {
      hn::Store(sum[r][v], d, scores + r * kRangePositions + v * kLanes);
    });
  });
}

/// Turns one query's scores of a range into weights in place, starting its state: maximum and lane
/// sums. Lanes outside `lanes` get weight 0 whatever their score; blocks outside stay unread.
void soften_range(Lanes lanes, float* HWY_RESTRICT scores, float* HWY_RESTRICT state) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const FloatVec hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  const int begin = lanes.begin / kPageSlots * kPageSlots;
  const int end = (lanes.end + kPageSlots - 1) / kPageSlots * kPageSlots;
  FloatVec most[kBlockVectors], sum[kBlockVectors];
  repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
    most[v] = hidden;
    sum[v] = hn::Zero(d);
  });
  for (int j = begin; j < end; j += kPageSlots) {
    const bool cut = j < lanes.begin || j + kPageSlots > lanes.end;
    repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
      const int first = j + v * static_cast<int>(kLanes);
      FloatVec score = hn::Load(d, scores + first);
      if (cut) {
        const auto lane = hn::Iota(di, first);
        const auto seen = hn::And(hn::Gt(lane, hn::Set(di, lanes.begin - 1)),
                                  hn::Lt(lane, hn::Set(di, lanes.end)));
        score = hn::IfThenElse(hn::RebindMask(d, seen), score, hidden);
        hn::Store(score, d, scores + first);
      }
      most[v] = hn::Max(most[v], score);
    });
  }
  repeat<kBlockVectors - 1>([&](auto v)
                                COPPICE_UNROLLED { most[0] = hn::Max(most[0], most[v + 1]); });
  const FloatVec maximum = hn::MaxOfLanes(d, most[0]);
  for (int j = begin; j < end; j += kPageSlots) {
    repeat<kBlockVectors>([&](auto v) COPPICE_UNROLLED {
      float* score = scores + j + v * kLanes;
      const FloatVec weight = exp2_nonpositive(hn::Sub(hn::Load(d, score), maximum));
      hn::Store(weight, d, score);
      sum[v] = hn::Add(sum[v], weight);
    });
  }
  state[0] = hn::GetLane(maximum);
  repeat<kBlockVectors>(
      [&](auto v) COPPICE_UNROLLED { hn::Store(sum[v], d, state + kStateHeader + v * kLanes); });
}

/// C vectors of channels: value[r] += sum over the lanes of weight[r][j] V[j]. Values read straight
/// from a page come from memory, as keys do.
template <int R, int C, class T>
HWY_INLINE void add_channels(const T* const* values, Lanes lanes, const float* HWY_RESTRICT weights,
                             int head_dim, [[maybe_unused]] Ahead ahead, float* HWY_RESTRICT state,
                             int channel) {
  const Floats d;
  const size_t stride = attention_state_floats(head_dim);
  FloatVec sum[R][C];
  const auto each = [&](const auto& body) COPPICE_UNROLLED {
    repeat<C>([&](auto c) COPPICE_UNROLLED {
      repeat<R>([&](auto r) COPPICE_UNROLLED {
        body(sum[r][c], state + r * stride + kStateValues + channel + c * kLanes);
      });
    });
  };
  each([&](FloatVec& v, const float* from) COPPICE_UNROLLED { v = hn::Load(d, from); });
  for (int j = lanes.begin; j < lanes.end; ++j) {
    const T* HWY_RESTRICT row = values[j] + channel;
    if constexpr (std::is_same_v<T, uint16_t>) {
      constexpr int kLine = 64 / sizeof(uint16_t);
      for (int c = 0; c < C * static_cast<int>(kLanes); c += kLine) {
        ahead.fetch(j * head_dim + channel + c);
      }
    }
    repeat<C>([&](auto c) COPPICE_UNROLLED {
      const FloatVec value = load_floats(row + c * kLanes);
      repeat<R>([&](auto r) COPPICE_UNROLLED {
        const FloatVec weight = hn::Set(d, weights[r * kRangePositions + j]);
        sum[r][c] = hn::MulAdd(weight, value, sum[r][c]);
      });
    });
  }
  each([&](const FloatVec& v, float* to) COPPICE_UNROLLED { hn::Store(v, d, to); });
}

/// One block's values for R queries that see the same lanes.
template <int R, class T>
HWY_NOINLINE void add_values(const T* const* values, Lanes lanes, int head_dim, Ahead ahead,
                             const float* weights, float* state) {
  constexpr int kChunk = R * 4 <= kAccumulators ? 4 : kAccumulators / R;
  constexpr int kStep = kChunk * static_cast<int>(kLanes);
  const int padded = padded_head_dim(head_dim);
  int channel = 0;
  for (; channel + kStep <= padded; channel += kStep) {
    add_channels<R, kChunk>(values, lanes, weights, head_dim, ahead, state, channel);
  }
  for (; channel < padded; channel += static_cast<int>(kLanes)) {
    add_channels<R, 1>(values, lanes, weights, head_dim, ahead, state, channel);
  }
}

/// body(std::integral_constant<int, n>, first) over `queries` queries, n <= kQueries at a time.
template <int R = kQueries, class Body>
HWY_INLINE void in_query_tiles(int queries, const Body& body, int first = 0) {
  for (; queries - first >= R; first += R) body(std::integral_constant<int, R>(), first);
  if constexpr (R > 1) {
    if (first < queries) in_query_tiles<R - 1>(queries, body, first);
  }
}
/// K of a block as floats, where enough queries share the work: (head_dim, kPageSlots).
void widen_keys(const uint16_t* keys, int head_dim, Ahead ahead, float* HWY_RESTRICT out) {
  const Floats d;
  for (int c = 0; c < head_dim; ++c) {
    ahead.fetch(c * kPageSlots);
    for (int j = 0; j < kPageSlots; j += static_cast<int>(kLanes)) {
      hn::Store(load_floats(keys + c * kPageSlots + j), d, out + c * kPageSlots + j);
    }
  }
}

/// V of a block as floats (kPageSlots, head_dim padded to 16), where enough queries share the work
/// or a page's rows are too short to be read by whole vectors.
void widen_values(const uint16_t* const* values, Lanes lanes, int head_dim, Ahead ahead,
                  float* HWY_RESTRICT out, const float** wide) {
  const Floats d;
  const int padded = padded_head_dim(head_dim);
  for (int j = lanes.begin; j < lanes.end; ++j) {
    float* to = out + j * padded;
    for (int c = 0; c < head_dim; c += 32) ahead.fetch(j * head_dim + c);
    int c = 0;
    for (; c + static_cast<int>(kLanes) <= head_dim; c += static_cast<int>(kLanes)) {
      hn::Store(load_floats(values[j] + c), d, to + c);
    }
    for (; c < padded; ++c) to[c] = c < head_dim ? half_to_float(values[j][c]) : 0.0f;
    wide[j] = to;
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
