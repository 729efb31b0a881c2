// Products with AVX2: vpmaddubsw partial sums in 16 bits, as many as cannot overflow, then one
// vpmaddwd. A tile is 8 outputs by up to 8 rows; per row and 8 x 32 values of 4 bits: 8 vpmaddubsw,
// 7 vpaddw, 1 vpmaddwd, one conversion and two or three float operations.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/product_sets.h"
#include "kernels/cpu/products_kernel.h"

namespace coppice::cpu {
namespace {

struct Floats16 {
  __m256 low, high;  // outputs 0..7, 8..15
};
struct Ints16 {
  __m256i low, high;
};

struct Avx2 {
  static constexpr bool kUnrolled = true;
  using Floats = Floats16;
  using Ints = Ints16;
  static constexpr int kTileRows = 8;

  static Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Floats fill(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Floats broadcast(const float* value) { return fill(*value); }
  static Floats load(const float* v) { return {_mm256_loadu_ps(v), _mm256_loadu_ps(v + 8)}; }
  static void store(float* to, Floats v) {
    _mm256_storeu_ps(to, v.low);
    _mm256_storeu_ps(to + 8, v.high);
  }
  static Floats add(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Floats sub(Floats a, Floats b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static Floats mul(Floats a, Floats b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static Floats div(Floats a, Floats b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Floats min(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }
  static Floats max(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static Floats negate(Floats v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(v.low, sign), _mm256_xor_ps(v.high, sign)};
  }
  static Floats absolute(Floats v) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, v.low), _mm256_andnot_ps(sign, v.high)};
  }
  static bool has_flaw(Floats a, Floats b) {
    // x - x is 0, or NaN where x is an infinity or a NaN.
    const Floats zero_a = sub(a, a), zero_b = sub(b, b);
    const __m256 zero =
        _mm256_or_ps(_mm256_or_ps(zero_a.low, zero_a.high), _mm256_or_ps(zero_b.low, zero_b.high));
    return _mm256_movemask_ps(_mm256_cmp_ps(zero, zero, _CMP_UNORD_Q)) != 0;
  }
  static float reduce_max(Floats v) {
    const __m256 eight = _mm256_max_ps(v.low, v.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  static Floats power_of_two(Floats shifted) {
    return {power_of_two(shifted.low), power_of_two(shifted.high)};
  }

  static Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Ints broadcast(const int32_t* value) {
    return {_mm256_set1_epi32(*value), _mm256_set1_epi32(*value)};
  }
  static Floats to_floats(Ints v) {
    return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
  }
  static int to_bytes(Floats v, int8_t* to) {
    const __m256i low = _mm256_cvtps_epi32(v.low), high = _mm256_cvtps_epi32(v.high);
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
    const __m256i eight = _mm256_add_epi32(low, high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }

  static Floats from_halves(const uint8_t* halves) {
    return {_mm256_cvtph_ps(load_16(halves)), _mm256_cvtph_ps(load_16(halves + 16))};
  }
  static Floats from_unsigned_bytes(const uint8_t* bytes) {
    const __m128i all = load_16(bytes);
    return to_floats({_mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8))});
  }
  static Floats from_signed_bytes(const uint8_t* bytes) {
    const __m128i all = load_16(bytes);
    return to_floats({_mm256_cvtepi8_epi32(all), _mm256_cvtepi8_epi32(_mm_srli_si128(all, 8))});
  }
  template <DType kType>
  static Floats from_weights(const uint8_t* record) {
    if constexpr (kType == DType::f32) {
      return load(reinterpret_cast<const float*>(record));
    } else if constexpr (kType == DType::f16) {
      return from_halves(record);
    } else {
      return {from_bfloats(record), from_bfloats(record + 16)};
    }
  }

  /// each(r, sum, second sum): the integer sums of row r; of the halves 0..15 and 16..31 for 6
  /// bits.
  template <int kBits, int kOffset, int kRows, class Each>
  [[gnu::always_inline]] static void sums(const uint8_t* values, const TileBlock& x,
                                          const Each& each) {
    __m256i low[2][kRows], high[2][kRows];
    sums_of_8<kBits, kOffset, kRows>(values, x, low);
    sums_of_8<kBits, kOffset, kRows>(values + 32, reread(x), high);
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kSecond = kBits == 6;
      each(r, Ints{low[0][r.value], high[0][r.value]},
           Ints{low[kSecond][r.value], high[kSecond][r.value]});
    });
  }

 private:
  static __m128i load_16(const uint8_t* bytes) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  }
  static __m256 from_bfloats(const uint8_t* eight) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(eight)), 16));
  }
  static __m256 power_of_two(__m256 shifted) {
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f800000)));
  }

  static __m256i load_32(const uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  }

  /// The same block to the processor, another to the compiler, which would else keep all broadcast
  /// activations for their second use, on the stack: a store and a load in place of a load.
  static TileBlock reread(TileBlock x) {
    asm volatile("" : "+r"(x.block));
    return x;
  }

  /// The integer sums of 8 outputs and kRows rows.
  template <int kBits, int kOffset, int kRows>
  [[gnu::always_inline]] static void sums_of_8(const uint8_t* values, const TileBlock& x,
                                               __m256i (&sum)[2][kRows]) {
    __m256i pairs[kRows];        // 16-bit sums not yet widened
    if constexpr (kBits == 8) {  // as two values of 4 bits: 8 * 2 * 15 * 127 < 2^15
      repeat<2>([&](auto high) __attribute__((always_inline)) {
        const TileBlock again = reread(x);
        repeat<8>([&](auto g) __attribute__((always_inline)) {
          multiply_add<g.value == 0, kRows>(pairs, nibbles<high.value>(values + 64 * g.value),
                                            again, g.value);
        });
        widen<high.value == 0, kOffset, kRows>(sum[0], pairs, x, 0, high.value == 0 ? 1 : 16);
      });
    } else {
      // 16-bit sums hold 8 groups of 4 inputs at 4 bits, 4 at 5 (4 * 2 * 31 * 127), 2 at 6.
      constexpr int kGroups = kBits == 4 ? 8 : kBits == 5 ? 4 : 2;
      constexpr int kHalves = kBits == 6 ? 2 : 1;
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        multiply_add<g.value % kGroups == 0, kRows>(pairs, unpack<kBits, g.value>(values), x,
                                                    g.value);
        if constexpr ((g.value + 1) % kGroups == 0) {
          constexpr int kHalf = kHalves * g.value / 8;
          constexpr bool kFirst = g.value + 1 - kGroups == 8 / kHalves * kHalf;
          widen<kFirst, kOffset, kRows>(sum[kHalf], pairs, x, kHalf, 1);
        }
      });
    }
  }

  template <int kHigh>
  [[gnu::always_inline]] static __m256i nibbles(const uint8_t* bytes) {
    __m256i v = load_32(bytes);
    if constexpr (kHigh) v = _mm256_srli_epi16(v, 4);
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
  }
  /// The stored values of inputs 4 kGroup..4 kGroup+3, as unsigned bytes.
  template <int kBits, int kGroup>
  [[gnu::always_inline]] static __m256i unpack(const uint8_t* values) {
    const __m256i low = nibbles<kGroup % 2>(values + 64 * (kGroup / 2));
    if constexpr (kBits == 4) return low;
    constexpr int kShift = kBits == 5 ? 4 - kGroup : 4 - 2 * (kGroup % 4);
    constexpr char kMask = kBits == 5 ? 0x10 : 0x30;
    __m256i bits = load_32(values + 256 + (kBits == 6 ? 64 * (kGroup / 4) : 0));
    if constexpr (kShift > 0) bits = _mm256_slli_epi16(bits, kShift);
    if constexpr (kShift < 0) bits = _mm256_srli_epi16(bits, -kShift);
    return _mm256_or_si256(low, _mm256_and_si256(bits, _mm256_set1_epi8(kMask)));
  }

  /// pairs[r] (+)= w times inputs 4 group..4 group+3 of row r, two at a time.
  template <bool kFirst, int kRows>
  [[gnu::always_inline]] static void multiply_add(__m256i (&pairs)[kRows], __m256i w,
                                                  const TileBlock& x, int group) {
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      int32_t bits;
      std::memcpy(&bits, x.value(r.value) + 4 * group, sizeof(bits));
      const __m256i products = _mm256_maddubs_epi16(w, _mm256_set1_epi32(bits));
      pairs[r.value] = kFirst ? products : _mm256_add_epi16(pairs[r.value], products);
      asm("" : "+x"(pairs[r.value]));  // else the sums become trees, with all products alive
    });
  }

  /// sum[r] (+)= factor * pairs[r], in 32 bits; the first starts from minus the offset's share.
  template <bool kFirst, int kOffset, int kRows>
  [[gnu::always_inline]] static void widen(__m256i (&sum)[kRows], const __m256i (&pairs)[kRows],
                                           const TileBlock& x, int half, short factor) {
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      const __m256i wide = _mm256_madd_epi16(pairs[r.value], _mm256_set1_epi16(factor));
      if constexpr (!kFirst) {
        sum[r.value] = _mm256_add_epi32(sum[r.value], wide);
      } else if constexpr (kOffset != 0) {
        sum[r.value] = _mm256_add_epi32(start_of<Avx2, kOffset>(x, r.value, half).low, wide);
      } else {
        sum[r.value] = wide;
      }
    });
  }
};

}  // namespace

constinit const ProductKernels kAvx2Products = product_kernels_of<Avx2>("avx2");

}  // namespace coppice::cpu
#endif
