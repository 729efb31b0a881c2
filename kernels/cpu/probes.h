// What a machine can do at most, as loops that do nothing else: read memory, multiply-add floats,
// sum products of bytes. One table a dispatch target; `coppice roofline` compares a model's steps
// with them. Source of the idea: Williams, Waterman and Patterson 2009, "Roofline".
//
//   const MachineProbes& probes = machine_probes("avx2");
//   uint64_t sum = probes.read(data, bytes, {.streams = 4, .ahead = 1024});
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace coppice::cpu {

/// How memory is walked: so many runs side by side, each line asked for `ahead` bytes early.
struct ReadPattern {
  int streams = 1;  // 1, 2, 4 or 8
  int ahead = 0;
};

struct MachineProbes {
  std::string_view target;
  /// Sum of the little-endian 64-bit words at `data`, modulo 2^64: every byte is read. `bytes` is a
  /// multiple of kReadMultiple, `data` aligned to 64.
  uint64_t (*read)(const uint8_t* data, size_t bytes, const ReadPattern& pattern);

  /// fp32 fused multiply-adds (plain ones where there are none), in independent chains. A round
  /// adds `multiply_add_lanes` products of 1; returns their sum.
  double (*multiply_add)(int64_t rounds);
  int multiply_add_lanes;

  /// Products of unsigned 4-bit and signed 8-bit values, summed: the fastest way that the target
  /// has of multiplying 4-bit weights. A round adds `dot_lanes` products of 1; returns their sum.
  int64_t (*dot)(int64_t rounds);
  int dot_lanes;
};

inline constexpr size_t kReadMultiple = 8 * 64;

/// The probes of a target of the cpu backend; of "scalar" for a name without its own.
const MachineProbes& machine_probes(std::string_view target);

}  // namespace coppice::cpu
