// The emulator's tensor-core products: the last lane to arrive gathers the fragments of all 32 by
// the layouts in mma.cuh and multiplies. A product is summed in double and rounded once onto C.
#include "kernels/cuda/mma.cuh"

namespace coppice::cuda::inline emulated {
namespace {

constexpr int kRows = 16, kColumns = 8, kMostDepth = 32;

/// One lane's operands; 8-bit products of depth 16 leave a[2], a[3] and b[1] zero.
struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
};

struct Bf16 {
  static float value(uint32_t word, int i) {
    return bfloat16_bits_to_float(static_cast<uint16_t>(word >> (16 * i)));
  }
  static constexpr int kPerWord = 2;
};
struct F16 {
  static float value(uint32_t word, int i) {
    return half_bits_to_float(static_cast<uint16_t>(word >> (16 * i)));
  }
  static constexpr int kPerWord = 2;
};
struct S8 {
  static int value(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }
  static constexpr int kPerWord = 4;
};

/// `Value`: an element; `Sum`: what products are summed in; `T`: an element of C.
template <class Format, class Value, class Sum, class T>
void combine(const emulator::Lane (&lanes)[warpSize], uint32_t) {
  constexpr int kHalf = 4 * Format::kPerWord;  // depth that one register of each lane covers
  Value a[kRows][kMostDepth], b[kColumns][kMostDepth];
  for (int lane = 0; lane < warpSize; ++lane) {
    const auto& fragment = *static_cast<const Fragments*>(lanes[lane].in);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < Format::kPerWord; ++i) {
      for (int half = 0; half < 2; ++half) {
        const int k = half * kHalf + Format::kPerWord * t + i;
        a[g][k] = Format::value(fragment.a[2 * half], i);
        a[g + 8][k] = Format::value(fragment.a[2 * half + 1], i);
        b[g][k] = Format::value(fragment.b[half], i);
      }
    }
  }
  for (int lane = 0; lane < warpSize; ++lane) {
    T* c = static_cast<T*>(lanes[lane].out);
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      Sum sum = 0;
      for (int k = 0; k < 2 * kHalf; ++k) sum += Sum{a[row][k]} * b[column][k];
      c[i] = static_cast<T>(c[i] + sum);
    }
  }
}

}  // namespace

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<Bf16, float, double, float>, &fragments, c);
}
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<F16, float, double, float>, &fragments, c);
}
void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<S8, int, int, int>, &fragments, c);
}
void mma_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  const Fragments fragments{{a0, a1, 0, 0}, {b0, 0}};
  emulator::collective(0xffffffffu, combine<S8, int, int, int>, &fragments, c);
}

}  // namespace coppice::cuda::inline emulated
