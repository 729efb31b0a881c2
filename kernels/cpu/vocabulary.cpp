// Work on one row of logits: argmax and its Gumbel-noised kin, for every dispatch target.
#include "kernels/cpu/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/cpu/simd.h"
#include "kernels/shared/gumbel.h"
// clang-format off: this order is Highway's
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vocabulary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

struct Largest {
  float value = -std::numeric_limits<float>::infinity();
  bool has_nan = false;
};

Largest largest(const float* HWY_RESTRICT x, int n) {
  const Floats d;
  constexpr int kVectors = 4;
  constexpr int kStep = kVectors * static_cast<int>(kLanes);
  Largest result;
  FloatVec most[kVectors];
  auto nan = hn::IsNaN(hn::Zero(d));
  for (FloatVec& m : most) m = hn::Set(d, result.value);
  int i = 0;
  for (; i + kStep <= n; i += kStep) {
    for (int v = 0; v < kVectors; ++v) {
      const FloatVec value = hn::LoadU(d, x + i + v * static_cast<int>(kLanes));
      nan = hn::Or(nan, hn::IsNaN(value));
      most[v] = hn::Max(most[v], value);
    }
  }
  result.has_nan = !hn::AllFalse(d, nan);
  for (const FloatVec& m : most) {
    result.value = std::max(result.value, hn::GetLane(hn::MaxOfLanes(d, m)));
  }
  for (; i < n; ++i) {
    result.has_nan |= std::isnan(x[i]);
    result.value = std::max(result.value, x[i]);
  }
  return result;
}

/// First index whose value equals `value`, which stands in the row.
int32_t first_equal(const float* HWY_RESTRICT x, int n, float value) {
  const Floats d;
  const FloatVec wanted = hn::Set(d, value);
  int i = 0;
  for (; i + static_cast<int>(kLanes) <= n; i += static_cast<int>(kLanes)) {
    const intptr_t lane = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), wanted));
    if (lane >= 0) return i + static_cast<int32_t>(lane);
  }
  while (i < n && x[i] != value) ++i;
  return i;
}

int32_t argmax(const float* x, int n) {
  const Largest best = largest(x, n);
  return best.has_nan ? kNotANumber : first_equal(x, n, best.value);
}

/// The k best so far as a heap whose root is the worst of them, in the caller's own arrays.
class WorstFirstHeap {
 public:
  WorstFirstHeap(int32_t* index, float* value, int k) : index_(index), value_(value), k_(k) {}

  /// Everything below the root keeps its order: call for i = k/2-1 down to 0, then after each
  /// change.
  void sift_down(int i, int size) {
    while (true) {
      int worst = i;
      for (int child = 2 * i + 1; child <= 2 * i + 2 && child < size; ++child) {
        if (is_worse(child, worst)) worst = child;
      }
      if (worst == i) return;
      std::swap(index_[i], index_[worst]);
      std::swap(value_[i], value_[worst]);
      i = worst;
    }
  }
  void build() {
    for (int i = k_ / 2 - 1; i >= 0; --i) sift_down(i, k_);
  }
  void replace_worst(int32_t index, float value) {
    index_[0] = index;
    value_[0] = value;
    sift_down(0, k_);
  }
  /// Best first.
  void sort() {
    for (int size = k_ - 1; size > 0; --size) {
      std::swap(index_[0], index_[size]);
      std::swap(value_[0], value_[size]);
      sift_down(0, size);
    }
  }

 private:
  bool is_worse(int a, int b) const {
    if (value_[a] < value_[b] || value_[a] > value_[b]) return value_[a] < value_[b];
    const bool a_nan = std::isnan(value_[a]);
    return a_nan == std::isnan(value_[b]) ? index_[a] > index_[b] : a_nan;
  }

  int32_t* index_;
  float* value_;
  int k_;
};

void top_k(const float* HWY_RESTRICT x, int n, int k, int32_t* index, float* value) {
  for (int i = 0; i < k; ++i) {
    index[i] = i;
    value[i] = x[i];
  }
  WorstFirstHeap heap(index, value, k);
  heap.build();
  // Later values enter only when larger: an equal one has the higher index. A NaN at the root is
  // below every number and gives way to any.
  const auto enter = [&](int i) {
    if (x[i] > value[0] || (std::isnan(value[0]) && !std::isnan(x[i]))) heap.replace_worst(i, x[i]);
  };
  const Floats d;
  int i = k;
  for (; i + static_cast<int>(kLanes) <= n; i += static_cast<int>(kLanes)) {
    const FloatVec worst = hn::Set(d, value[0]);
    // Not "less or equal" rather than "greater", so that a NaN on either side is looked at.
    if (hn::AllTrue(d, hn::Le(hn::LoadU(d, x + i), worst))) continue;
    for (int j = 0; j < static_cast<int>(kLanes); ++j) enter(i + j);
  }
  for (; i < n; ++i) enter(i);
  heap.sort();
}

/// The winner so far of coupled_score, exactly as the definition compares.
struct Winner {
  double score = -std::numeric_limits<double>::infinity();
  int32_t token = 0;

  void offer(const float* x, double inverse_temperature, int32_t candidate, uint32_t word) {
    const double s = coupled_score(x[candidate], inverse_temperature, word);
    if (s > score || (s == score && candidate < token)) *this = {s, candidate};
  }
};

/// The definition, for tokens begin..end-1; begin is a multiple of 4.
void offer_all(const float* x, double inverse_temperature, NoiseKey key, int position, int begin,
               int end, Winner* winner) {
  for (int block = begin; block < end; block += 4) {
    const Philox4x32 noise = target_noise_block(key, position, block);
    for (int i = block; i < std::min(block + 4, end); ++i) {
      winner->offer(x, inverse_temperature, i, noise.word[i % 4]);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

int32_t gumbel_argmax(const float* x, int n, double inverse_temperature, NoiseKey key,
                      int position) {
  if (largest(x, n).has_nan) return kNotANumber;
  Winner winner;
  offer_all(x, inverse_temperature, key, position, 0, n, &winner);
  return winner.token;
}

#else

using Wide = hn::CappedTag<uint64_t, 8>;  // a lane holds one 32-bit word of a Philox state
using WideVec = hn::Vec<Wide>;
using Words = hn::Repartition<uint32_t, Wide>;
using WordFloats = hn::Repartition<float, Wide>;
constexpr int kCounters = static_cast<int>(hn::MaxLanes(Wide()));
constexpr int kTokens = 4 * kCounters;  // tokens whose noise one vector of counters gives

/// Noise words of tokens first..first+kTokens-1, in their order, in two vectors.
HWY_INLINE void philox_words(NoiseKey key, int position, int first, hn::Vec<Words>* low,
                             hn::Vec<Words>* high) {
  const Wide d;
  const Words dw;
  const auto multiply = [&](WideVec a, uint32_t m) HWY_ATTR {
    return hn::MulEven(hn::BitCast(dw, a), hn::BitCast(dw, hn::Set(d, m)));
  };
  // Counters stand in the order that leaves the words in memory order after the interleaving below:
  // in 128-bit block b, counter b and counter b + kCounters / 2.
  const WideVec lane = hn::Iota(d, 0);
  const WideVec odd = hn::And(lane, hn::Set(d, 1));
  const WideVec counter =
      hn::Add(hn::ShiftRight<1>(lane),
              hn::IfThenElseZero(hn::Eq(odd, hn::Set(d, 1)), hn::Set(d, kCounters / 2)));
  const Philox4x32 start = target_noise_counter(key, position, first);
  WideVec c0 = hn::Add(counter, hn::Set(d, start.word[0]));
  WideVec c1 = hn::Set(d, start.word[1]);
  WideVec c2 = hn::Set(d, start.word[2]);
  WideVec c3 = hn::Set(d, start.word[3]);
  auto key0 = static_cast<uint32_t>(key.seed);
  auto key1 = static_cast<uint32_t>(key.seed >> 32);
  // Upper halves hold leftovers: the multiplication reads lower halves only.
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const WideVec product0 = multiply(c0, kPhiloxMultiplier0);
    const WideVec product1 = multiply(c2, kPhiloxMultiplier1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1), hn::Set(d, key0));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3), hn::Set(d, key1));
    c1 = product1;
    c3 = product0;
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  const WideVec lower_half = hn::Set(d, 0xffffffffu);
  const WideVec words01 = hn::Or(hn::And(c0, lower_half), hn::ShiftLeft<32>(c1));
  const WideVec words23 = hn::Or(hn::And(c2, lower_half), hn::ShiftLeft<32>(c3));
  *low = hn::BitCast(dw, hn::InterleaveLower(d, words01, words23));
  *high = hn::BitCast(dw, hn::InterleaveUpper(d, words01, words23));
}

/// Which tokens may still win. Gumbel noise of a word with u = (word + 1/2) 2^-32 obeys
/// 1 - u <= exp(-noise), so a token reaches `best` only if
///   log2(1 - u) <= (logit / T - best) log2 e,
/// where log2(1 - u) is bounded from below by the bits of the float nearest to 2^31 (1 - u): its
/// exponent plus its mantissa, read as one number, is at most the logarithm.
class Bound {
 public:
  Bound(float largest, double inverse_temperature)
      : largest_(largest),
        top_(static_cast<double>(largest) * inverse_temperature),
        scale_(static_cast<float>(inverse_temperature * kLog2E)) {}

  /// float is enough here: for logits far from the largest the error grows, but they cannot win.
  bool holds() const { return std::abs(top_) < 0x1p24 && scale_ < 0x1p60f; }

  void set_best(double score) {
    constexpr double kSlack = 1.0 / 256;  // over all float rounding here, a few 2^-17
    offset_ = static_cast<float>(127.0 + 31.0 + kSlack - (score - top_) * kLog2E);
  }

  HWY_INLINE auto may_win(hn::Vec<Words> words, const float* x) const {
    const WordFloats d;
    const hn::RebindToSigned<Words> di;
    const auto rest =
        hn::BitCast(di, hn::ShiftRight<1>(hn::Not(words)));  // 2^31 (1 - u), rounded down
    const auto bits = hn::BitCast(di, hn::ConvertTo(d, rest));
    const auto log2_rest = hn::Mul(hn::ConvertTo(d, bits), hn::Set(d, 0x1p-23f));
    const auto below = hn::Sub(hn::LoadU(d, x), hn::Set(d, largest_));
    return hn::Le(log2_rest, hn::MulAdd(below, hn::Set(d, scale_), hn::Set(d, offset_)));
  }

 private:
  float largest_;
  double top_;
  float scale_;
  float offset_ = 0.0f;
};

int32_t gumbel_argmax(const float* x, int n, double inverse_temperature, NoiseKey key,
                      int position) {
  const Largest most = largest(x, n);
  if (most.has_nan) return kNotANumber;
  Bound bound(most.value, inverse_temperature);
  Winner winner;
  if (!bound.holds()) {  // infinite or huge logits
    offer_all(x, inverse_temperature, key, position, 0, n, &winner);
    return winner.token;
  }
  const int32_t likely = first_equal(x, n, most.value);
  winner.offer(x, inverse_temperature, likely, target_noise(key, position, likely));
  bound.set_best(winner.score);

  const Words dw;
  const WordFloats d;
  constexpr int kHalf = kTokens / 2;
  int first = 0;
  for (; first + kTokens <= n; first += kTokens) {
    hn::Vec<Words> words[2];
    philox_words(key, position, first, &words[0], &words[1]);
    const auto low = bound.may_win(words[0], x + first);
    const auto high = bound.may_win(words[1], x + first + kHalf);
    if (hn::AllFalse(d, hn::Or(low, high))) continue;
    HWY_ALIGN uint32_t word[kTokens];
    hn::Store(words[0], dw, word);
    hn::Store(words[1], dw, word + kHalf);
    uint8_t bits[2][8] = {};
    hn::StoreMaskBits(d, low, bits[0]);
    hn::StoreMaskBits(d, high, bits[1]);
    for (int i = 0; i < kTokens; ++i) {
      const int lane = i % kHalf;
      if ((bits[i / kHalf][lane / 8] >> (lane % 8) & 1) == 0) continue;
      winner.offer(x, inverse_temperature, first + i, word[i]);
    }
    bound.set_best(winner.score);
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  _mm256_zeroupper();  // g++ 12 forgets it here: the caller's SSE code would crawl
#endif
  offer_all(x, inverse_temperature, key, position, first, n, &winner);
  return winner.token;
}

#endif

const VocabularyKernels* get_vocabulary_kernels() {
  static constexpr VocabularyKernels kKernels{argmax, top_k, gumbel_argmax};
  return &kKernels;
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(get_vocabulary_kernels);

const VocabularyKernels& vocabulary_kernels(int64_t target) {
  return *HWY_DISPATCH_TABLE(get_vocabulary_kernels)[dispatch_index(target)]();
}

namespace {
const VocabularyKernels& best_kernels() {
  static const VocabularyKernels& kernels = vocabulary_kernels(hwy::SupportedTargets());
  return kernels;
}
}  // namespace

int32_t argmax(std::span<const float> x) {
  COPPICE_CHECK(!x.empty());
  return best_kernels().argmax(x.data(), static_cast<int>(x.size()));
}

void top_k(std::span<const float> x, int k, int32_t* index, float* value) {
  COPPICE_CHECK(k >= 1 && static_cast<size_t>(k) <= x.size());
  best_kernels().top_k(x.data(), static_cast<int>(x.size()), k, index, value);
}

int32_t gumbel_argmax(std::span<const float> x, double inverse_temperature, NoiseKey key,
                      int position) {
  COPPICE_CHECK(!x.empty());
  return best_kernels().gumbel_argmax(x.data(), static_cast<int>(x.size()), inverse_temperature,
                                      key, position);
}

}  // namespace coppice::cpu
#endif
