// See devices.h.
#include "experiments/devices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/options.h"
#include "core/quote.h"
#include "experiments/toml_source.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

// Sparse figures of the data sheets are halved. Ada's bf16 figure is the one with fp32 sums.
const Device kDevices[] = {
    {"h200", "NVIDIA H200 SXM", 141e9, 4.8e12, 989.5e12, 1979e12, 67e12, 450e9, 8e-6, true,
     "NVIDIA H200 Tensor Core GPU data sheet, 2024"},
    {"h100", "NVIDIA H100 SXM 80 GB", 80e9, 3.35e12, 989.5e12, 1979e12, 67e12, 450e9, 8e-6, true,
     "NVIDIA H100 Tensor Core GPU data sheet, 2023"},
    {"a100", "NVIDIA A100 SXM 80 GB", 80e9, 2.039e12, 312e12, 624e12, 19.5e12, 300e9, 10e-6, false,
     "NVIDIA A100 Tensor Core GPU data sheet, 2021"},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 24e9, 1.008e12, 165.2e12, 660.6e12, 82.6e12, 32e9, 25e-6,
     false, "NVIDIA Ada GPU architecture white paper, 2022, table 2; PCI Express 4.0 x16"},
};

struct MachineOptions {
  std::string name, source;
  double memory_gb = 0, gb_per_s = 0;
  double bf16_tflop_per_s = 0, int8_top_per_s = 0, fp32_tflop_per_s = 0;
  double link_gb_per_s = 64, all_reduce_us = 10;
  bool early_start = false;

  template <class V>
  void visit(V& v) {
    v("name", name, "what tables call it");
    v("source", source, "where the figures come from");
    v("memory_gb", memory_gb, "of one device", Range{0.001, 1e6});
    v("gb_per_s", gb_per_s, "memory bandwidth", Range{0.001, 1e6});
    v("bf16_tflop_per_s", bf16_tflop_per_s, "two a multiply-add, dense", Range{0.001, 1e6});
    v("int8_top_per_s", int8_top_per_s, "the same of 8-bit integers", Range{0.001, 1e6});
    v("fp32_tflop_per_s", fp32_tflop_per_s, "of plain cores", Range{0.001, 1e6});
    v("link_gb_per_s", link_gb_per_s, "to another device, one direction", Range{0.001, 1e6});
    v("all_reduce_us", all_reduce_us, "the least that a sum over devices takes", Range{0, 1e6});
    v("early_start", early_start, "compute capability 9.0 or later: kernels start early");
  }
};

}  // namespace

std::span<const Device> devices() {
  return kDevices;
}

const Device& find_device(std::string_view name) {
  const auto found = std::find_if(std::begin(kDevices), std::end(kDevices),
                                  [&](const Device& device) { return device.name == name; });
  if (found != std::end(kDevices)) return *found;
  std::vector<std::string_view> names;
  for (const Device& device : kDevices) names.push_back(device.name);
  throw Error("device {} is not in the table{}", quote(name), suggest_word(name, names));
}

Device read_device(const std::filesystem::path& path) {
  const std::string place = path.filename().string();
  for (const ConfigTable& table : read_toml(path)) {
    if (table.name != "machine") continue;
    const auto given = read_options<MachineOptions>(table.entries, table.place);
    const double needed[] = {given.memory_gb, given.gb_per_s, given.bf16_tflop_per_s,
                             given.int8_top_per_s, given.fp32_tflop_per_s};
    if (given.name.empty() || given.source.empty() ||
        *std::min_element(needed, std::end(needed)) <= 0) {
      throw Error(
          "{}: give name, source, memory_gb, gb_per_s, bf16_tflop_per_s, int8_top_per_s and "
          "fp32_tflop_per_s",
          table.place);
    }
    return {path.stem().string(),
            given.name,
            1e9 * given.memory_gb,
            1e9 * given.gb_per_s,
            1e12 * given.bf16_tflop_per_s,
            1e12 * given.int8_top_per_s,
            1e12 * given.fp32_tflop_per_s,
            1e9 * given.link_gb_per_s,
            1e-6 * given.all_reduce_us,
            given.early_start,
            given.source};
  }
  throw Error("{}: has no [machine] table", place);
}

}  // namespace coppice
