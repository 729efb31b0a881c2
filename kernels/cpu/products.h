// The matrix products of the cpu backend: weights packed once into panels that keep their file's
// bit width, and the instruction sets that multiply them.
//
//   auto memory = std::make_shared<PanelMemory>();                               // one a model
//   PackedWeight weight({views, 3}, Stacking::concatenated, memory, parallel_for);  // Q, K, V
//   const ProductKernels& kernels = product_kernels().front();               // the best there is
//   pool.run([&](int first, int last) {   // panels, any split: the bits are the same
//     kernels.multiply(weight.panels(), activations, first, last, epilogue, y, y_stride); });
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/panels.h"

namespace coppice::cpu {

/// Calls body(i) once for each i in 0..count-1, on any threads, and returns when all are done.
using ParallelFor = std::function<void(int count, const std::function<void(int)>& body)>;

/// Memory that many weights share, on huge pages where the system has them: a step walks all of it,
/// and in small pages the walk stalls on address translation (measured: a third of the speed).
/// Freed when the last weight is.
class PanelMemory {
 public:
  /// 64-byte aligned, contents undefined. Throws Failure when the system has none left.
  uint8_t* take(size_t bytes);

 private:
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> regions_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;
};

/// A weight of one or several parts, each of its own type. Holds at most 1.15 times the bytes that
/// the parts have in their file (float and outputs that fill their panels; others round up to 16).
class PackedWeight final : public Weight {
 public:
  /// Throws Error when the parts differ in inputs, or two gated parts in outputs.
  PackedWeight(std::span<const TensorView> parts, Stacking stacking,
               std::shared_ptr<PanelMemory> memory, const ParallelFor& parallel_for);
  const Panels& panels() const { return panels_; }

 private:
  std::vector<PanelPart> parts_;
  Panels panels_;
  std::shared_ptr<PanelMemory> memory_;
};

/// out (inputs) = row `row` of a weight of one part, dequantised, times scale. The values are those
/// of dequantise_row, bit for bit, when scale is 1.
void embed_row(const Panels& table, int32_t row, float scale, float* out);

/// The instruction sets of this build that this machine has, best first; "scalar" is always there.
std::span<const ProductKernels* const> product_kernels();

}  // namespace coppice::cpu
