// Products in plain C++, for machines without a vector set of ours and as the tests' second
// opinion.
#include <cmath>

#include "kernels/base/dtype.h"
#include "kernels/cpu/product_sets.h"
#include "kernels/cpu/products_kernel.h"

namespace coppice::cpu {
namespace {

template <class T>
struct Lanes {
  T lane[kPanelOutputs];
};

struct Scalar {
  static constexpr bool kUnrolled = false;
  using Floats = Lanes<float>;
  using Ints = Lanes<int32_t>;
  static constexpr int kTileRows = 8;

  static Floats zero() { return {}; }
  static Floats fill(float value) {
    return map([&](int) { return value; });
  }
  static Floats broadcast(const float* value) { return fill(*value); }
  static Floats load(const float* v) {
    return map([&](int i) { return v[i]; });
  }
  static void store(float* to, Floats v) { std::memcpy(to, v.lane, sizeof(v.lane)); }
  static Floats add(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static Floats sub(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static Floats mul(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static Floats div(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static Floats fma(Floats a, Floats b, Floats c) {
    return map([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static Floats min(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Floats max(Floats a, Floats b) {
    return map([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static Floats negate(Floats v) {
    return map([&](int i) { return -v.lane[i]; });
  }
  static Floats absolute(Floats v) {
    return map([&](int i) { return std::fabs(v.lane[i]); });
  }
  static bool has_flaw(Floats a, Floats b) {
    const Floats zero = add(sub(a, a), sub(b, b));  // NaN where x is an infinity or a NaN
    float sum = 0.0f;
    for (float lane : zero.lane) sum += lane;
    return sum != 0.0f;
  }
  static float reduce_max(Floats v) {
    float largest = v.lane[0];
    for (float lane : v.lane) largest = lane > largest ? lane : largest;
    return largest;
  }
  static Floats power_of_two(Floats shifted) {
    return map([&](int i) {
      uint32_t bits;
      std::memcpy(&bits, &shifted.lane[i], sizeof(bits));
      bits = (bits << 23) + 0x3f800000u;
      float power;
      std::memcpy(&power, &bits, sizeof(power));
      return power;
    });
  }

  static Ints zero_ints() { return {}; }
  static Ints broadcast(const int32_t* value) {
    Ints result;
    for (int32_t& lane : result.lane) lane = *value;
    return result;
  }
  static Floats to_floats(Ints v) {
    return map([&](int i) { return static_cast<float>(v.lane[i]); });
  }
  static int to_bytes(Floats v, int8_t* to) {
    int sum = 0;
    for (int i = 0; i < kPanelOutputs; ++i) {
      const float shifted = v.lane[i] + 0x1.8p23f;  // rounds to nearest even, |v| < 2^22
      to[i] = static_cast<int8_t>(shifted - 0x1.8p23f);
      sum += to[i];
    }
    return sum;
  }

  static Floats from_halves(const uint8_t* halves) {
    return map([&](int i) { return half_to_float(bits_at(halves, i)); });
  }
  static Floats from_unsigned_bytes(const uint8_t* bytes) {
    return map([&](int i) { return static_cast<float>(bytes[i]); });
  }
  static Floats from_signed_bytes(const uint8_t* bytes) {
    return map([&](int i) { return static_cast<float>(static_cast<int8_t>(bytes[i])); });
  }
  template <DType kType>
  static Floats from_weights(const uint8_t* record) {
    if constexpr (kType == DType::f16) return from_halves(record);
    if constexpr (kType == DType::bf16) {
      return map([&](int i) { return bfloat16_to_float(bits_at(record, i)); });
    }
    Floats result;
    std::memcpy(result.lane, record, sizeof(result.lane));
    return result;
  }

  /// each(r, sum, second sum): the integer sums of row r; of the halves 0..15 and 16..31 for 6
  /// bits.
  template <int kBits, int kOffset, int kRows, class Each>
  static void sums(const uint8_t* values, const TileBlock& x, const Each& each) {
    constexpr int kHalves = kBits == 6 ? 2 : 1;
    each_row<Scalar, kRows>([&](auto r) {
      Ints sum[2];
      for (int half = 0; half < kHalves; ++half) {
        sum[half] = start_of<Scalar, kOffset>(x, r.value, half);
      }
      const int8_t* row = x.value(r.value);
      for (int k = 0; k < kBlock; ++k) {
        for (int i = 0; i < kPanelOutputs; ++i) {
          sum[kHalves * k / kBlock].lane[i] += stored_value<kBits>(values, i, k) * row[k];
        }
      }
      each(r, sum[0], sum[kHalves - 1]);
    });
  }

 private:
  template <class Lane>
  static Floats map(const Lane& lane) {
    Floats result;
    for (int i = 0; i < kPanelOutputs; ++i) result.lane[i] = lane(i);
    return result;
  }
  static uint16_t bits_at(const uint8_t* words, int i) {
    uint16_t bits;
    std::memcpy(&bits, words + sizeof(bits) * static_cast<size_t>(i), sizeof(bits));
    return bits;
  }
};

}  // namespace

constinit const ProductKernels kScalarProducts = product_kernels_of<Scalar>("scalar");

}  // namespace coppice::cpu
