// Products with AVX-512 VNNI: one vpdpbusd multiplies 16 outputs by 4 inputs of a row. Per row and
// 16 x 32 values: 8 of them, one conversion, two or three float operations.
#if defined(__x86_64__)
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/product_sets.h"

namespace coppice::cpu {
namespace {

struct Avx512Vnni : LanesAvx512 {
  static constexpr int kTileRows = 16;
  static constexpr int kTogether = 4;  // rows whose sums alternate: vpdpbusd takes 5 cycles

  /// each(r, sum, second sum): the integer sums of row r; of the halves 0..15 and 16..31 for 6
  /// bits.
  template <int kBits, int kOffset, int kRows, class Each>
  [[gnu::always_inline]] static void sums(const uint8_t* values, const TileBlock& x,
                                          const Each& each) {
    __m512i w[8];
    unpack<kBits>(values, w);
    repeat<(kRows + kTogether - 1) / kTogether>([&](auto batch) __attribute__((always_inline)) {
      constexpr int kHalves = kBits == 6 ? 2 : 1;
      constexpr int kFirst = batch.value * kTogether;
      constexpr int kCount = kRows - kFirst < kTogether ? kRows - kFirst : kTogether;
      __m512i sum[kCount][kHalves];
      repeat<kCount>([&](auto r) __attribute__((always_inline)) {
        repeat<kHalves>([&](auto half) __attribute__((always_inline)) {
          sum[r.value][half.value] = start_of<Avx512Vnni, kOffset>(x, kFirst + r.value, half.value);
        });
      });
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        repeat<kCount>([&](auto r) __attribute__((always_inline)) {
          constexpr int kHalf = kHalves * g.value / 8;
          multiply_add(sum[r.value][kHalf], w[g.value], x.value(kFirst + r.value) + 4 * g.value);
        });
      });
      repeat<kCount>([&](auto r) __attribute__((always_inline)) {
        each(Index<kFirst + r.value>{}, sum[r.value][0], sum[r.value][kHalves - 1]);
      });
    });
  }

 private:
  /// sum += w times four values of a row. g++ 12 would load and broadcast them on their own: a
  /// third more instructions.
  [[gnu::always_inline]] static void multiply_add(__m512i& sum, __m512i w, const int8_t* four) {
    struct [[gnu::may_alias]] Four {
      int8_t values[4];
    };
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum)
        : "v"(w), "m"(*reinterpret_cast<const Four*>(four)));
  }
};

}  // namespace

constinit const ProductKernels kAvx512VnniProducts = product_kernels_of<Avx512Vnni>("avx512_vnni");

}  // namespace coppice::cpu
#endif
