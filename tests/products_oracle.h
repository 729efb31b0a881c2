// The oracle of the matrix products: plain double sums over dequantised weights, and how far a
// product with activations of 8 bits may lie from them.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/base/blocks.h"
#include "kernels/base/dtype.h"

namespace coppice::test {

struct Expected {
  double value = 0.0;
  double bound = 0.0;  // largest error of a right product
};

/// What stands for q = 0 at a row's input k: the minimum of its block, in magnitude.
inline double minimum_at(const TensorView& view, int64_t row, int k) {
  const auto block = [&]<class Block>(const Block*) {
    return reinterpret_cast<const Block*>(view.row(row)) + k / traits(view.type).block_values;
  };
  const auto twice = [&](const auto* b) {
    return half_to_float(b->d_min) * sub_scale(b->scales, k % 256 / 32).minimum;
  };
  switch (view.type) {
    case DType::q4_1:
      return half_to_float(block(static_cast<BlockQ4_1*>(nullptr))->m);
    case DType::q5_1:
      return half_to_float(block(static_cast<BlockQ5_1*>(nullptr))->m);
    case DType::q4_k:
      return twice(block(static_cast<BlockQ4_K*>(nullptr)));
    case DType::q5_k:
      return twice(block(static_cast<BlockQ5_K*>(nullptr)));
    default:
      return 0.0;
  }
}

/// Row `row` of W times x. Three sources of error: a quantised activation lies within half a step
/// of its value; a block's product is rounded at most four times; the sum is rounded once a block.
inline Expected expected_product(const TensorView& view, int64_t row, const float* x) {
  const int inputs = static_cast<int>(view.cols);
  std::vector<float> w(static_cast<size_t>(inputs));
  dequantise_row(view, row, w);
  const bool is_float =
      view.type == DType::f32 || view.type == DType::f16 || view.type == DType::bf16;
  Expected result;
  double magnitude = 0.0;
  int roundings = is_float ? inputs : inputs / 32 + 4;
  for (int k = 0; k < inputs; ++k) {
    double step = 0.0;
    if (!is_float) {
      for (int i = k / 32 * 32; i < k / 32 * 32 + 32; ++i) {
        step = std::max(step, std::fabs(double{x[i]}) / 127.0);
      }
    }
    const double wk = double{w[static_cast<size_t>(k)]};
    result.value += wk * double{x[k]};
    const double half_step = 0.5 * step * (1.0 + 1e-4);
    result.bound += std::fabs(wk) * half_step;
    magnitude += (std::fabs(wk) + 2.0 * std::fabs(minimum_at(view, row, k))) *
                 (std::fabs(double{x[k]}) + half_step);
  }
  result.bound += magnitude * roundings * 0x1p-24 + 1e-37;
  return result;
}

}  // namespace coppice::test
