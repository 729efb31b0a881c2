// 16 floats or integers in one AVX-512 register, and the unpacking of panels to bytes: what the two
// AVX-512 instruction sets share.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/products_kernel.h"

namespace coppice::cpu {
namespace {

struct LanesAvx512 {
  static constexpr bool kUnrolled = true;
  using Floats = __m512;
  using Ints = __m512i;

  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats fill(float value) { return _mm512_set1_ps(value); }
  static Floats broadcast(const float* value) { return _mm512_set1_ps(*value); }
  static Floats load(const float* values) { return _mm512_loadu_ps(values); }
  static void store(float* to, Floats v) { _mm512_storeu_ps(to, v); }
  static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats negate(Floats v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
  static Floats absolute(Floats v) { return _mm512_abs_ps(v); }
  static bool has_flaw(Floats a, Floats b) {
    constexpr int kNanOrInfinity = 0x99;
    return (_mm512_fpclass_ps_mask(a, kNanOrInfinity) |
            _mm512_fpclass_ps_mask(b, kNanOrInfinity)) != 0;
  }
  static float reduce_max(Floats v) { return _mm512_reduce_max_ps(v); }
  static Floats power_of_two(Floats shifted) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f800000)));
  }

  static Ints zero_ints() { return _mm512_setzero_si512(); }
  static Ints broadcast(const int32_t* value) { return _mm512_set1_epi32(*value); }
  static Ints broadcast_bytes(const int8_t* four) {
    int32_t bits;
    std::memcpy(&bits, four, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  static Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
  static int to_bytes(Floats v, int8_t* to) {
    const __m512i rounded = _mm512_cvtps_epi32(v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(rounded));
    return _mm512_reduce_add_epi32(rounded);
  }

  static Floats from_halves(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }
  static Floats from_unsigned_bytes(const uint8_t* bytes) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  static Floats from_signed_bytes(const uint8_t* bytes) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  template <DType kType>
  static Floats from_weights(const uint8_t* record) {
    if constexpr (kType == DType::f32) return _mm512_loadu_ps(record);
    if constexpr (kType == DType::f16) return from_halves(record);
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(record));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }

  static __m512i load_bytes(const uint8_t* bytes) { return _mm512_loadu_si512(bytes); }

  /// w[g]: for 16 outputs the stored values of inputs 4g..4g+3, as unsigned bytes.
  template <int kBits>
  [[gnu::always_inline]] static void unpack(const uint8_t* values, __m512i (&w)[8]) {
    if constexpr (kBits == 8) {
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        w[g.value] = load_bytes(values + 64 * g.value);
      });
      return;
    }
    const __m512i low_bits = _mm512_set1_epi8(15);
    repeat<4>([&](auto n) __attribute__((always_inline)) {
      const __m512i nibbles = load_bytes(values + 64 * n.value);
      w[2 * n.value] = _mm512_and_si512(nibbles, low_bits);
      w[2 * n.value + 1] = _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), low_bits);
    });
    if constexpr (kBits == 5) {
      const __m512i bits = load_bytes(values + 256);
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        w[g.value] = with_high_bits<4 - g.value>(w[g.value], bits, 0x10);
      });
    }
    if constexpr (kBits == 6) {
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        const __m512i bits = load_bytes(values + 256 + 64 * (g.value / 4));
        w[g.value] = with_high_bits<4 - 2 * (g.value % 4)>(w[g.value], bits, 0x30);
      });
    }
  }

 private:
  /// low | ((bits << kShift) & mask), bytewise.
  template <int kShift>
  [[gnu::always_inline]] static __m512i with_high_bits(__m512i low, __m512i bits, char mask) {
    if constexpr (kShift > 0) bits = _mm512_slli_epi16(bits, kShift);
    if constexpr (kShift < 0) bits = _mm512_srli_epi16(bits, -kShift);
    constexpr int kOrAnd = 0xf8;  // a | (b & c)
    return _mm512_ternarylogic_epi32(low, bits, _mm512_set1_epi8(mask), kOrAnd);
  }
};

}  // namespace
}  // namespace coppice::cpu
