// The emulator's tensor-core products: the last lane to arrive gathers the fragments of all 32 by
// the layouts in mma.cuh and multiplies. A product is summed along its depth, then added to C.
#include "kernels/cuda/mma.cuh"

namespace coppice::cuda {
inline namespace emulated {
namespace {

constexpr int kRows = 16, kColumns = 8;

/// One lane's operands; 8-bit products of depth 16 leave a[2], a[3] and b[1] zero.
struct Fragments {
  uint32_t a[4];
  uint32_t b[2];
};

struct Bf16 {
  static constexpr int kPerWord = 2;
  static float value(uint32_t word, int i) {
    return bfloat16_bits_to_float(static_cast<uint16_t>(word >> (16 * i)));
  }
};
struct F16 {
  static constexpr int kPerWord = 2;
  static float value(uint32_t word, int i) {
    return half_bits_to_float(static_cast<uint16_t>(word >> (16 * i)));
  }
};
struct S8 {  // sums of 32 products are exact in float
  static constexpr int kPerWord = 4;
  static float value(uint32_t word, int i) {
    return static_cast<float>(static_cast<int8_t>(word >> (8 * i)));
  }
};

/// T: an element of C.
template <class Format, class T>
void combine(const emulator::Lane (&lanes)[warpSize], uint32_t) {
  constexpr int kHalf = 4 * Format::kPerWord;  // depth that one register of each lane covers
  float a[kRows][2 * kHalf], b[2 * kHalf][kColumns], sums[kRows][kColumns] = {};
  for (int lane = 0; lane < warpSize; ++lane) {
    const auto& fragment = *static_cast<const Fragments*>(lanes[lane].in);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < Format::kPerWord; ++i) {
      for (int half = 0; half < 2; ++half) {
        const int k = half * kHalf + Format::kPerWord * t + i;
        a[g][k] = Format::value(fragment.a[2 * half], i);
        a[g + 8][k] = Format::value(fragment.a[2 * half + 1], i);
        b[k][g] = Format::value(fragment.b[half], i);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < 2 * kHalf; ++k) {
      for (int column = 0; column < kColumns; ++column)
        sums[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < warpSize; ++lane) {
    T* c = static_cast<T*>(lanes[lane].out);
    for (int i = 0; i < 4; ++i) {
      c[i] += static_cast<T>(sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
    }
  }
}

}  // namespace

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<Bf16, float>, &fragments, c);
}
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<F16, float>, &fragments, c);
}
void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const Fragments fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulator::collective(0xffffffffu, combine<S8, int>, &fragments, c);
}
void mma_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  const Fragments fragments{{a0, a1, 0, 0}, {b0, 0}};
  emulator::collective(0xffffffffu, combine<S8, int>, &fragments, c);
}

}  // namespace emulated
}  // namespace coppice::cuda
