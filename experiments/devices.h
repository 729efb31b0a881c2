// Machines that speeds are predicted for: what their makers publish, nothing measured here. One
// line a machine; each names its source.
//
//   const Device& device = find_device("h200");
//   double seconds = bytes / (kMemoryReach * device.bytes_per_s);
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

struct Device {
  std::string name;         // "h200"
  std::string full_name;    // "NVIDIA H200 SXM"
  double memory_bytes;      // of one device
  double bytes_per_s;       // memory bandwidth
  double bf16_per_s;        // tensor cores, dense, fp32 sums; two operations a multiply-add
  double int8_per_s;        // tensor cores, dense
  double fp32_per_s;        // plain cores; two operations a multiply-add
  double link_bytes_per_s;  // to another device, one direction
  double all_reduce_s;      // the least that a sum over devices takes: an assumption
  bool early_start;         // a kernel may start while the one before runs: sm_90 and later
  std::string source;
};

std::span<const Device> devices();
/// Throws Error naming those there are.
const Device& find_device(std::string_view name);
/// One from a TOML file's [machine] table, such as configs/machines/l40s.toml. Throws Error.
Device read_device(const std::filesystem::path& path);

// What kernels reach of these figures. Assumptions, the same for every machine, to be replaced by
// what tests/run_gpu.sh measures.
inline constexpr double kMemoryReach = 0.88;  // of the bandwidth, in a long read
inline constexpr double kTensorReach = 0.60;  // of the tensor cores, by mma.sync
inline constexpr double kPlainReach = 0.80;   // of the plain cores, when unpacking and scaling
inline constexpr double kKernelGap = 1.0e-6;  // seconds between two kernels of one graph

}  // namespace coppice
