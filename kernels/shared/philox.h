// Philox 4x32-10: a counter-based generator. A word of noise is a pure function of its address, so
// nothing is ever consumed from a stream. Source: Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011.
//
//   Philox4x32 r = philox4x32({{token / 4, position, request, 0}}, key_low, key_high);
#pragma once

#include <cstdint>

#include "kernels/shared/host_device.h"

namespace coppice {

struct Philox4x32 {
  uint32_t word[4];
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u;
inline constexpr uint32_t kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u;  // golden ratio
inline constexpr uint32_t kPhiloxWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1
inline constexpr int kPhiloxRounds = 10;

COPPICE_HD constexpr Philox4x32 philox4x32(Philox4x32 counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

}  // namespace coppice
