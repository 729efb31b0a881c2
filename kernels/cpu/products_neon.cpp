// Products with NEON and its dot product extension (ARMv8.2): one sdot multiplies 4 outputs by 4
// inputs of a row. Stored values of up to 6 bits are the same signed or unsigned; those of 8 bits
// lose their offset instead.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "kernels/cpu/product_sets.h"
#include "kernels/cpu/products_kernel.h"

namespace coppice::cpu {
namespace {

struct Neon {
  static constexpr bool kUnrolled = true;
  struct Floats {
    float32x4_t part[4];  // outputs 0..3, 4..7, 8..11, 12..15
  };
  struct Ints {
    int32x4_t part[4];
  };
  static constexpr int kTileRows = 8;

  static Floats zero() { return fill(0.0f); }
  static Floats fill(float value) {
    return map([&](int) { return vdupq_n_f32(value); });
  }
  static Floats broadcast(const float* value) { return fill(*value); }
  static Floats load(const float* v) {
    return map([&](int i) { return vld1q_f32(v + 4 * i); });
  }
  static void store(float* to, Floats v) {
    for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, v.part[i]);
  }
  static Floats add(Floats a, Floats b) {
    return map([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
  }
  static Floats sub(Floats a, Floats b) {
    return map([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
  }
  static Floats mul(Floats a, Floats b) {
    return map([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
  }
  static Floats div(Floats a, Floats b) {
    return map([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return map([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
  }
  static Floats min(Floats a, Floats b) {
    return map([&](int i) { return vminq_f32(a.part[i], b.part[i]); });
  }
  static Floats max(Floats a, Floats b) {
    return map([&](int i) { return vmaxq_f32(a.part[i], b.part[i]); });
  }
  static Floats negate(Floats v) {
    return map([&](int i) { return vnegq_f32(v.part[i]); });
  }
  static Floats absolute(Floats v) {
    return map([&](int i) { return vabsq_f32(v.part[i]); });
  }
  static bool has_flaw(Floats a, Floats b) {
    // x - x is 0, or NaN where x is an infinity or a NaN; NaN is kept by sums.
    const Floats zero = add(sub(a, a), sub(b, b));
    return vaddvq_f32(vaddq_f32(vaddq_f32(zero.part[0], zero.part[1]),
                                vaddq_f32(zero.part[2], zero.part[3]))) != 0.0f;
  }
  static float reduce_max(Floats v) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v.part[0], v.part[1]), vmaxq_f32(v.part[2], v.part[3])));
  }
  static Floats power_of_two(Floats shifted) {
    return map([&](int i) {
      const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(shifted.part[i]), 23);
      return vreinterpretq_f32_s32(vaddq_s32(n, vdupq_n_s32(0x3f800000)));
    });
  }

  static Ints zero_ints() {
    const int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
  }
  static Ints broadcast(const int32_t* value) {
    const int32x4_t all = vdupq_n_s32(*value);
    return {{all, all, all, all}};
  }
  static Floats to_floats(Ints v) {
    return map([&](int i) { return vcvtq_f32_s32(v.part[i]); });
  }
  static int to_bytes(Floats v, int8_t* to) {
    int32x4_t rounded[4];
    for (int i = 0; i < 4; ++i) rounded[i] = vcvtnq_s32_f32(v.part[i]);
    const int16x8_t low = vcombine_s16(vmovn_s32(rounded[0]), vmovn_s32(rounded[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(rounded[2]), vmovn_s32(rounded[3]));
    const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
    vst1q_s8(to, bytes);
    return vaddlvq_s8(bytes);
  }

  static Floats from_halves(const uint8_t* halves) {
    return map([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(halves + 8 * i))); });
  }
  static Floats from_unsigned_bytes(const uint8_t* bytes) {
    const uint8x16_t all = vld1q_u8(bytes);
    const uint16x8_t low = vmovl_u8(vget_low_u8(all)), high = vmovl_u8(vget_high_u8(all));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
  }
  static Floats from_signed_bytes(const uint8_t* bytes) {
    const int8x16_t all = vreinterpretq_s8_u8(vld1q_u8(bytes));
    const int16x8_t low = vmovl_s8(vget_low_s8(all)), high = vmovl_s8(vget_high_s8(all));
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  template <DType kType>
  static Floats from_weights(const uint8_t* record) {
    if constexpr (kType == DType::f32) {
      return map([&](int i) { return vreinterpretq_f32_u8(vld1q_u8(record + 16 * i)); });
    } else if constexpr (kType == DType::f16) {
      return from_halves(record);
    } else {
      return map([&](int i) {
        const uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(record + 8 * i));
        return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
      });
    }
  }

  /// each(r, sum, second sum): the integer sums of row r; of the halves 0..15 and 16..31 for 6
  /// bits.
  template <int kBits, int kOffset, int kRows, class Each>
  [[gnu::always_inline]] static void sums(const uint8_t* values, const TileBlock& x,
                                          const Each& each) {
    constexpr int kHalves = kBits == 6 ? 2 : 1;
    constexpr int kStart = kBits == 8 ? 0 : kOffset;
    Ints sum[kRows][kHalves];
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      for (int half = 0; half < kHalves; ++half) {
        sum[r.value][half] = start_of<Neon, kStart>(x, r.value, half);
      }
    });
    repeat<4>([&](auto part) __attribute__((always_inline)) {
      repeat<8>([&](auto g) __attribute__((always_inline)) {
        constexpr int kHalf = kHalves * g.value / 8;
        const int8x16_t w = unpack<kBits, g.value>(values + 16 * part.value);
        repeat<kRows>([&](auto r) __attribute__((always_inline)) {
          int32_t four;
          std::memcpy(&four, x.value(r.value) + 4 * g.value, sizeof(four));
          int32x4_t& to = sum[r.value][kHalf].part[part.value];
          to = vdotq_s32(to, w, vreinterpretq_s8_s32(vdupq_n_s32(four)));
        });
      });
    });
    repeat<kRows>([&](auto r) __attribute__((always_inline)) {
      each(r, sum[r.value][0], sum[r.value][kHalves - 1]);
    });
  }

 private:
  template <class Part>
  [[gnu::always_inline]] static Floats map(const Part& part) {
    return {{part(0), part(1), part(2), part(3)}};
  }

  /// The stored values of inputs 4 kGroup..4 kGroup+3 and four outputs; signed where of 8 bits.
  template <int kBits, int kGroup>
  [[gnu::always_inline]] static int8x16_t unpack(const uint8_t* values) {
    if constexpr (kBits == 8) {
      return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(values + 64 * kGroup), vdupq_n_u8(0x80)));
    } else {
      const uint8x16_t nibbles = vld1q_u8(values + 64 * (kGroup / 2));
      uint8x16_t w = kGroup % 2 == 0 ? vandq_u8(nibbles, vdupq_n_u8(15)) : vshrq_n_u8(nibbles, 4);
      if constexpr (kBits != 4) {
        constexpr int kShift = kBits == 5 ? 4 - kGroup : 4 - 2 * (kGroup % 4);
        constexpr uint8_t kMask = kBits == 5 ? 0x10 : 0x30;
        uint8x16_t bits = vld1q_u8(values + 256 + (kBits == 6 ? 64 * (kGroup / 4) : 0));
        if constexpr (kShift > 0) bits = vshlq_n_u8(bits, kShift);
        if constexpr (kShift < 0) bits = vshrq_n_u8(bits, -kShift);
        w = vorrq_u8(w, vandq_u8(bits, vdupq_n_u8(kMask)));
      }
      return vreinterpretq_s8_u8(w);
    }
  }
};

}  // namespace

constinit const ProductKernels kNeonProducts = product_kernels_of<Neon>("neon");

}  // namespace coppice::cpu
#endif
