// Where every random number of a run comes from: an address, hashed by Philox. Equal address, equal
// noise, whatever the batch, the method or the thread that asks; different addresses never share a
// Philox counter, so nothing is used twice.
//
//   token's Gumbel word:  target_noise({seed, request}, position, token)
//   accept coin of depth: to_uniform(noise({seed, request}, root, depth, Purpose::accept, lane))
#pragma once

#include <cstdint>

#include "kernels/shared/host_device.h"
#include "kernels/shared/philox.h"

namespace coppice {

/// Whose noise: the caller's own numbers, never an arrival order.
struct NoiseKey {
  uint64_t seed = 0;
  uint32_t request = 0;
};

/// Counter word 3 = purpose << 24 | depth. Zero belongs to target noise alone.
enum class Purpose : uint32_t {
  target = 0,
  accept = 1,    // a rule's accept coin; lane = node judged
  residual = 2,  // a rule's draw after a rejection
  bonus = 3,     // a rule's draw at the end of an accepted path
  draft = 4,     // a drafter's draw; lane = the index the node gets in its tree
  drafter = 5,   // whatever else a drafter needs
};

inline constexpr int kMaxNoiseDepth = (1 << 24) - 1;

COPPICE_HD constexpr Philox4x32 philox_at(NoiseKey key, Philox4x32 counter) {
  return philox4x32(counter, static_cast<uint32_t>(key.seed),
                    static_cast<uint32_t>(key.seed >> 32));
}

/// Counter of the block of four tokens that holds `token`: word token % 4 of the result is its own.
/// `position` is the absolute position of the token that is drawn.
COPPICE_HD constexpr Philox4x32 target_noise_counter(NoiseKey key, int position, int32_t token) {
  return {{static_cast<uint32_t>(token) / 4, static_cast<uint32_t>(position), key.request, 0}};
}
COPPICE_HD constexpr Philox4x32 target_noise_block(NoiseKey key, int position, int32_t token) {
  return philox_at(key, target_noise_counter(key, position, token));
}
COPPICE_HD constexpr uint32_t target_noise(NoiseKey key, int position, int32_t token) {
  return target_noise_block(key, position, token).word[token % 4];
}

/// `root_position` is the absolute position of the step's node 0; 0 <= depth <= kMaxNoiseDepth.
COPPICE_HD constexpr Philox4x32 noise_counter(NoiseKey key, int root_position, int depth,
                                              Purpose purpose, uint32_t lane) {
  return {{lane, static_cast<uint32_t>(root_position), key.request,
           static_cast<uint32_t>(purpose) << 24 | static_cast<uint32_t>(depth)}};
}
COPPICE_HD constexpr Philox4x32 noise(NoiseKey key, int root_position, int depth, Purpose purpose,
                                      uint32_t lane) {
  return philox_at(key, noise_counter(key, root_position, depth, purpose, lane));
}

/// In [0, 1), a multiple of 2^-53, from words 0 and 1.
COPPICE_HD constexpr double to_uniform(Philox4x32 r) {
  return static_cast<double>((uint64_t{r.word[0]} << 32 | r.word[1]) >> 11) * 0x1p-53;
}

}  // namespace coppice
