// See devices.h.
#include "experiments/devices.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/options.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

// Sparse figures of the data sheets are halved. Ada's bf16 figure is the one with fp32 sums.
constexpr Device kDevices[] = {
    {"h200", "NVIDIA H200 SXM", 141e9, 4.8e12, 989.5e12, 1979e12, 67e12, 450e9, 8e-6,
     "NVIDIA H200 Tensor Core GPU data sheet, 2024"},
    {"h100", "NVIDIA H100 SXM 80 GB", 80e9, 3.35e12, 989.5e12, 1979e12, 67e12, 450e9, 8e-6,
     "NVIDIA H100 Tensor Core GPU data sheet, 2023"},
    {"a100", "NVIDIA A100 SXM 80 GB", 80e9, 2.039e12, 312e12, 624e12, 19.5e12, 300e9, 10e-6,
     "NVIDIA A100 Tensor Core GPU data sheet, 2021"},
    {"rtx4090", "NVIDIA GeForce RTX 4090", 24e9, 1.008e12, 165.2e12, 660.6e12, 82.6e12, 32e9, 25e-6,
     "NVIDIA Ada GPU architecture white paper, 2022, table 2; PCI Express 4.0 x16"},
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

}  // namespace coppice
