// The 16-bit float conversions over all their values, and blocks of every tensor type decoded by
// hand: each byte below that is not a default has its values worked out beside it.
#include "kernels/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

namespace coppice {
namespace {

/// The value of f16 bits by definition: sign, 5 exponent bits, 10 fraction bits. Finite ones only.
double half_value(int bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

TEST(Half, EveryValueToFloatAndBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, half_value(bits)) << std::hex << bits;
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << std::hex << bits;
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(std::signbit(value), bits >= 0x8000);
    } else {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(half_to_float(float_to_half(value))));
      continue;
    }
    ASSERT_EQ(float_to_half(value), bits) << std::hex << bits;
  }
}

TEST(Half, RoundsEveryMidpointToEven) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const double low = half_value(bits), high = half_value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(float_to_half(middle), even) << std::hex << bits;
    ASSERT_EQ(float_to_half(-middle), even | 0x8000) << std::hex << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), bits) << std::hex << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), bits + 1) << std::hex << bits;
  }
}

TEST(Half, RangeEnds) {
  EXPECT_EQ(float_to_half(65504.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);  // halfway to 65536: to even, which is infinity
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
}

TEST(Bfloat16, IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(bfloat16_to_float(0x3f80), 1.0f);
  EXPECT_EQ(bfloat16_to_float(0xc2f7), -123.5f);
  EXPECT_EQ(bfloat16_to_float(0x0001), std::ldexp(1.0f, -133));
  EXPECT_TRUE(std::isnan(bfloat16_to_float(0x7fc0)));
}

TEST(DTypes, NumbersAndSizesAreThoseOfTheFormat) {
  struct Row {
    uint32_t number;
    std::string_view name;
    int values, bytes;
  };
  const Row rows[] = {{0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},
                      {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},
                      {8, "Q8_0", 32, 34},    {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
                      {14, "Q6_K", 256, 210}, {30, "BF16", 1, 2}};
  uint32_t known = 0;
  for (uint32_t number = 0; number < 300; ++number) known += dtype_from_gguf(number).has_value();
  EXPECT_EQ(known, std::size(rows));
  EXPECT_FALSE(dtype_from_gguf(0xffffffffu).has_value());
  for (const Row& row : rows) {
    const auto type = dtype_from_gguf(row.number);
    ASSERT_TRUE(type.has_value()) << row.name;
    EXPECT_EQ(traits(*type).name, row.name);
    EXPECT_EQ(traits(*type).block_values, row.values);
    EXPECT_EQ(traits(*type).block_bytes, row.bytes);
  }
}

using Bytes = std::vector<uint8_t>;

/// Decodes one block, laid at an odd address behind a block of 0xff, as row 1 of 2.
std::vector<float> decode(DType type, const Bytes& block) {
  const auto size = static_cast<size_t>(traits(type).block_bytes);
  EXPECT_EQ(block.size() % size, 0u);
  std::vector<std::byte> memory(1 + 2 * block.size(), std::byte{0xff});
  std::memcpy(memory.data() + 1 + block.size(), block.data(), block.size());
  const auto values = static_cast<int64_t>(block.size() / size) * traits(type).block_values;
  std::vector<float> out(static_cast<size_t>(values));
  dequantise_row({type, memory.data() + 1, 2, values}, 1, out);
  return out;
}

/// Values at the places named; every other value is `rest`.
void expect_values(const std::vector<float>& got, float rest, const std::map<int, float>& named) {
  for (int i = 0; i < static_cast<int>(got.size()); ++i) {
    const auto found = named.find(i);
    EXPECT_EQ(got[i], found != named.end() ? found->second : rest) << "value " << i;
  }
}

// f16: 0x3800 = 0.5, 0x3c00 = 1, 0x4000 = 2, 0xc500 = -5; least byte first.

TEST(Decode, Floats) {
  EXPECT_EQ(decode(DType::f32, {0, 0, 0xc0, 0x3f, 0, 0, 0, 0x80}), (std::vector{1.5f, -0.0f}));
  EXPECT_EQ(decode(DType::f16, {0x00, 0x38, 0x00, 0xc5}), (std::vector{0.5f, -5.0f}));
  EXPECT_EQ(decode(DType::bf16, {0x80, 0x3f, 0xf7, 0xc2}), (std::vector{1.0f, -123.5f}));
}

TEST(Decode, Q4_0) {
  Bytes block(18, 0x88);             // q = 8 is zero
  block[0] = 0x00, block[1] = 0x38;  // d = 0.5
  block[2] = 0xf0;                   // value 0: 0 - 8, value 16: 15 - 8
  block[17] = 0x71;                  // value 15: 1 - 8, value 31: 7 - 8
  expect_values(decode(DType::q4_0, block), 0.0f,
                {{0, -4.0f}, {16, 3.5f}, {15, -3.5f}, {31, -0.5f}});
}

TEST(Decode, Q4_1) {
  Bytes block(20, 0x00);
  block[0] = 0x00, block[1] = 0x38;  // d = 0.5
  block[2] = 0x00, block[3] = 0xc5;  // m = -5
  block[4] = 0xf2;                   // value 0: 2, value 16: 15
  block[19] = 0x1a;                  // value 15: 10, value 31: 1
  expect_values(decode(DType::q4_1, block), -5.0f,
                {{0, -4.0f}, {16, 2.5f}, {15, 0.0f}, {31, -4.5f}});
}

TEST(Decode, Q5_0) {
  Bytes block(22, 0x00);
  block[0] = 0x00, block[1] = 0x40;  // d = 2
  block[2] = 0x01, block[3] = 0x80;  // fifth bits of values 0 and 15
  block[4] = 0x02, block[5] = 0x80;  // and of values 17 and 31
  block[6] = 0xf3;                   // value 0: 3 + 16, value 16: 15
  block[7] = 0x40;                   // value 17: 4 + 16
  block[21] = 0xf0;                  // value 15: 0 + 16, value 31: 15 + 16
  expect_values(decode(DType::q5_0, block), -32.0f,
                {{0, 6.0f}, {16, -2.0f}, {17, 8.0f}, {15, 0.0f}, {31, 30.0f}});
}

TEST(Decode, Q5_1) {
  Bytes block(24, 0x00);
  block[0] = 0x00, block[1] = 0x38;  // d = 0.5
  block[2] = 0x00, block[3] = 0x3c;  // m = 1
  block[4] = 0x00, block[5] = 0x01;  // fifth bit of value 8
  block[6] = 0x00, block[7] = 0x01;  // and of value 24
  block[16] = 0x75;                  // value 8: 5 + 16, value 24: 7 + 16
  block[17] = 0x2f;                  // value 9: 15, value 25: 2
  expect_values(decode(DType::q5_1, block), 1.0f, {{8, 11.5f}, {24, 12.5f}, {9, 8.5f}, {25, 2.0f}});
}

TEST(Decode, Q8_0AndTheLargestScale) {
  Bytes block(34, 0x00);
  block[0] = 0xff, block[1] = 0x7b;  // d = 65504
  block[2] = 0x80;                   // value 0: -128
  block[33] = 0x7f;                  // value 31: 127
  block[17] = 0xff;                  // value 15: -1
  expect_values(decode(DType::q8_0, block), 0.0f,
                {{0, -8384512.0f}, {31, 8319008.0f}, {15, -65504.0f}});
}

TEST(Decode, SmallestScaleKeepsItsBits) {
  Bytes block(34, 0x03);
  block[0] = 0x01, block[1] = 0x00;  // d = 2^-24
  expect_values(decode(DType::q8_0, block), 3.0f / 16777216.0f, {});
}

TEST(Decode, SecondBlockFollowsTheFirst) {
  Bytes blocks(68, 0x01);
  blocks[0] = 0x00, blocks[1] = 0x3c;    // d = 1
  blocks[34] = 0x00, blocks[35] = 0x40;  // d = 2
  const auto got = decode(DType::q8_0, blocks);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], i < 32 ? 1.0f : 2.0f);
}

// Sub-block scales 1 2 3 4 17 34 51 5, minima 0 1 2 3 20 37 54 7. Bytes 0-3: scales 0-3 with the
// upper two bits of scales 4-7 (1 2 3 0) on top; bytes 4-7 the same for the minima; bytes 8-11: the
// lower four bits of scales 4-7 (1 2 3 5) and of minima 4-7 (4 5 6 7).
const Bytes kSubScales = {0x41, 0x82, 0xc3, 0x04, 0x40, 0x81, 0xc2, 0x03, 0x41, 0x52, 0x63, 0x75};

// With d = 2, d_min = 0.5 and all q = 0: minus half of each minimum.
const float kRest[] = {-0.0f, -0.5f, -1.0f, -1.5f, -10.0f, -18.5f, -27.0f, -3.5f};

void expect_sub_blocks(const std::vector<float>& got, const std::map<int, float>& named) {
  for (int i = 0; i < 256; ++i) {
    const auto found = named.find(i);
    EXPECT_EQ(got[i], found != named.end() ? found->second : kRest[i / 32]) << "value " << i;
  }
}

void set_nibbles(Bytes& block, size_t at) {
  block[at + 0] = 0xa3;    // value 0: q 3, value 32: q 10
  block[at + 63] = 0x1f;   // value 95: q 15, value 127: q 1
  block[at + 69] = 0x72;   // value 133: q 2, value 165: q 7
  block[at + 112] = 0x9c;  // value 208: q 12, value 240: q 9
}

TEST(Decode, Q4_K) {
  Bytes block = {0x00, 0x40, 0x00, 0x38};  // d = 2, d_min = 0.5
  block.insert(block.end(), kSubScales.begin(), kSubScales.end());
  block.resize(144);
  set_nibbles(block, 16);
  expect_sub_blocks(decode(DType::q4_k, block), {{0, 6.0f},       // 2*1*3 - 0
                                                 {32, 39.5f},     // 2*2*10 - 0.5
                                                 {95, 89.0f},     // 2*3*15 - 1
                                                 {127, 6.5f},     // 2*4*1 - 1.5
                                                 {133, 58.0f},    // 2*17*2 - 10
                                                 {165, 457.5f},   // 2*34*7 - 18.5
                                                 {208, 1197.0f},  // 2*51*12 - 27
                                                 {240, 86.5f}});  // 2*5*9 - 3.5
}

TEST(Decode, Q5_K) {
  Bytes block = {0x00, 0x40, 0x00, 0x38};
  block.insert(block.end(), kSubScales.begin(), kSubScales.end());
  block.resize(176);
  block[16 + 0] = 0x02;   // place 0, sub-block 1: value 32 gains 16
  block[16 + 31] = 0x04;  // place 31, sub-block 2: value 95
  block[16 + 5] = 0x10;   // place 5, sub-block 4: value 133
  block[16 + 16] = 0x80;  // place 16, sub-block 7: value 240
  set_nibbles(block, 48);
  expect_sub_blocks(decode(DType::q5_k, block), {{0, 6.0f},
                                                 {32, 103.5f},  // 2*2*26 - 0.5
                                                 {95, 185.0f},  // 2*3*31 - 1
                                                 {127, 6.5f},
                                                 {133, 602.0f},  // 2*17*18 - 10
                                                 {165, 457.5f},
                                                 {208, 1197.0f},
                                                 {240, 246.5f}});  // 2*5*25 - 3.5
}

TEST(Decode, Q6_K) {
  Bytes block(210, 0x00);
  for (int i = 128; i < 192; ++i) block[i] = 0xaa;  // upper bits 2: q = 32 is zero
  block[208] = 0x00, block[209] = 0x38;             // d = 0.5
  const int8_t scales[16] = {1, 1, -2, 1, 127, 1, -128, 1, 1, 3, 1, 5, 1, 7, 1, -1};
  std::memcpy(block.data() + 192, scales, 16);
  block[3] = 0x5a, block[35] = 0xc1;             // place 3 of the first half
  block[128 + 3] = 0xe4;                         // upper bits 0, 1, 2, 3
  block[64 + 31] = 0x0f, block[64 + 63] = 0xf0;  // place 31 of the second half
  block[160 + 31] = 0x1b;                        // upper bits 3, 2, 1, 0
  expect_values(decode(DType::q6_k, block), 0.0f,
                {{3, -11.0f},     // 10 - 32, scale 1
                 {35, 15.0f},     // 17 - 32, scale -2
                 {67, 317.5f},    // 37 - 32, scale 127
                 {99, -1792.0f},  // 60 - 32, scale -128
                 {159, 46.5f},    // 63 - 32, scale 3
                 {191, 0.0f},     // 32 - 32, scale 5
                 {223, -56.0f},   // 16 - 32, scale 7
                 {255, 8.5f}});   // 15 - 32, scale -1
}

}  // namespace
}  // namespace coppice
