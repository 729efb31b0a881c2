// What every Highway file here includes first: the targets that are compiled, and the choice of one
// by value. Highway's own dispatch is a global; a table indexed by target lets backends of
// different targets live side by side. Then come foreach_target.h and highway.h, once per target.
//
//   HWY_EXPORT(get_kernels);
//   const Kernels& kernels(int64_t target) {
//     return *HWY_DISPATCH_TABLE(get_kernels)[dispatch_index(target)]();
//   }
#pragma once

// Without SSE (every machine we speed up has AVX2) and without the sizeless SVE vectors.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// One scalar target for every compiler: clang takes minutes over Highway's emulated vectors.
#define HWY_BROKEN_EMU128 1

#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>

namespace coppice::cpu {

/// Index in a HWY_EXPORT table of one of Highway's targets; the best compiled one for several bits.
inline size_t dispatch_index([[maybe_unused]] int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  return 0;  // a single target is compiled: the table has one entry
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return chosen.GetIndex();
#endif
}

}  // namespace coppice::cpu
