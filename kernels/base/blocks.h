// The quantised blocks of GGUF files, byte for byte. Scales are f16 bits; every struct is packed,
// because a tensor in a mapped file promises no alignment. Source: the GGUF quantisation formats.
//
//   const auto* block = reinterpret_cast<const BlockQ4_1*>(view.row(r));
//   float first = half_to_float(block->d) * (block->nibbles[0] & 15) + half_to_float(block->m);
#pragma once

#include <cstdint>

namespace coppice {

// Blocks of 32 values. In `nibbles`, value j < 16 is the low half of byte j and value j >= 16 the
// high half of byte j - 16; in `fifth_bits`, bit j is the fifth bit of value j.

/// x = d (q - 8)
struct [[gnu::packed]] BlockQ4_0 {
  uint16_t d;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

/// x = d q + m
struct [[gnu::packed]] BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

/// x = d (q - 16)
struct [[gnu::packed]] BlockQ5_0 {
  uint16_t d;
  uint32_t fifth_bits;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

/// x = d q + m
struct [[gnu::packed]] BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint32_t fifth_bits;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

/// x = d q
struct [[gnu::packed]] BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// Blocks of 256 values ("K"), scaled twice: f16 for the block, small integers for its sub-blocks.

/// The 6-bit scale and minimum of each of eight sub-blocks of 32 values, in 12 bytes.
struct SubScale {
  int scale;
  int minimum;
};
constexpr SubScale sub_scale(const uint8_t (&packed)[12], int j) {
  if (j < 4) return {packed[j] & 63, packed[j + 4] & 63};
  return {(packed[j + 4] & 15) | (packed[j - 4] >> 6 << 4),
          (packed[j + 4] >> 4) | (packed[j] >> 6 << 4)};
}

/// x = d scale q - d_min minimum. Four groups of 32 nibble bytes: the low halves of group g are
/// sub-block 2g, the high halves sub-block 2g + 1.
struct [[gnu::packed]] BlockQ4_K {
  uint16_t d;
  uint16_t d_min;
  uint8_t scales[12];  // see sub_scale
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

/// As Q4_K; bit s of fifth_bits[l] is the fifth bit of value l of sub-block s.
struct [[gnu::packed]] BlockQ5_K {
  uint16_t d;
  uint16_t d_min;
  uint8_t scales[12];
  uint8_t fifth_bits[32];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

/// x = d scales[j / 16] (q - 32). Each half of 128 values has 64 bytes of `nibbles` and 32 of
/// `upper_bits`: quarter k (32 values) takes its low four bits from nibbles 32 (k % 2) + l, low
/// half for k < 2, and its upper two from bits 2k of upper_bits[l].
struct [[gnu::packed]] BlockQ6_K {
  uint8_t nibbles[128];
  uint8_t upper_bits[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

}  // namespace coppice
