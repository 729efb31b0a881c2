// Products with AVX-512 without VNNI: vpmaddubsw partial sums in 16 bits, as many as cannot
// overflow, then one vpmaddwd. Per row and 16 x 32 values of 4 bits: 8 + 7 + 1 operations.
#if defined(__x86_64__)
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/product_sets.h"

namespace coppice::cpu {
namespace {

struct Avx512 : LanesAvx512 {
  static constexpr int kTileRows = 8;

  /// each(r, sum, second sum): the integer sums of row r; of the halves 0..15 and 16..31 for 6
  /// bits.
  template <int kBits, int kOffset, int kRows, class Each>
  [[gnu::always_inline]] static void sums(const uint8_t* values, const TileBlock& x,
                                          const Each& each) {
    __m512i w[8];
    unpack<kBits>(values, w);
    const __m512i low_bits = _mm512_set1_epi8(15);
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      __m512i sum[2];
      sum[0] = start_of<Avx512, kOffset>(x, r.value, 0);
      if constexpr (kBits == 4) {  // 8 * 2 * 15 * 127 < 2^15
        sum[0] = widen(sum[0], pairs<0, 8>(w, x.value(r.value)), 1);
      } else if constexpr (kBits == 5) {  // 4 * 2 * 31 * 127 < 2^15
        sum[0] = widen(sum[0], pairs<0, 4>(w, x.value(r.value)), 1);
        sum[0] = widen(sum[0], pairs<4, 8>(w, x.value(r.value)), 1);
      } else if constexpr (kBits == 6) {  // 2 * 2 * 63 * 127 < 2^15
        sum[1] = start_of<Avx512, kOffset>(x, r.value, 1);
        sum[0] = widen(sum[0], pairs<0, 2>(w, x.value(r.value)), 1);
        sum[0] = widen(sum[0], pairs<2, 4>(w, x.value(r.value)), 1);
        sum[1] = widen(sum[1], pairs<4, 6>(w, x.value(r.value)), 1);
        sum[1] = widen(sum[1], pairs<6, 8>(w, x.value(r.value)), 1);
      } else {  // as two values of 4 bits
        __m512i nibbles[8];
        repeat<8>([&](auto g) { nibbles[g.value] = _mm512_and_si512(w[g.value], low_bits); });
        sum[0] = widen(sum[0], pairs<0, 8>(nibbles, x.value(r.value)), 1);
        repeat<8>([&](auto g) {
          nibbles[g.value] = _mm512_and_si512(_mm512_srli_epi16(w[g.value], 4), low_bits);
        });
        sum[0] = widen(sum[0], pairs<0, 8>(nibbles, x.value(r.value)), 16);
      }
      each(r, sum[0], sum[kBits == 6]);
    });
  }

 private:
  /// Sums of w * x over the inputs 4 kFirst..4 kLast-1, each output in two 16-bit lanes.
  template <int kFirst, int kLast>
  [[gnu::always_inline]] static __m512i pairs(const __m512i (&w)[8], const int8_t* x) {
    __m512i sum = _mm512_maddubs_epi16(w[kFirst], broadcast_bytes(x + 4 * kFirst));
    repeat<kLast - kFirst - 1>([&](auto i) __attribute__((always_inline)) {
      constexpr int kGroup = kFirst + 1 + i.value;
      sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(w[kGroup], broadcast_bytes(x + 4 * kGroup)));
    });
    return sum;
  }
  static __m512i widen(__m512i sum, __m512i pairs, short factor) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(factor)));
  }
};

}  // namespace

constinit const ProductKernels kAvx512Products = product_kernels_of<Avx512>("avx512");

}  // namespace coppice::cpu
#endif
