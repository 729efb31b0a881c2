// The inner loops that are worth an instruction set of their own, one table a dispatch target.
// arithmetic-inl.h has the bodies; arithmetic_baseline.cpp and arithmetic_avx2.cpp compile them.
//
//   const Arithmetic& arithmetic = *find_arithmetic("avx2");
//   arithmetic.multiply(panel, 576, x, 4, y);
#pragma once

namespace coppice::reference {

/// Outputs in a weight panel: a multiple of the rows of Eigen's micro-kernel on every target, so
/// that one kernel, with one order of summation, computes every output.
inline constexpr int kPanel = 96;
/// Rows are padded to a multiple of this, the columns of Eigen's micro-kernel.
inline constexpr int kRowPad = 4;
/// Keys in a tile of attention: the slots of a page.
inline constexpr int kTileKeys = 32;

/// A softmax over keys seen so far, for one row and head: out = sum / total.
struct RunningSoftmax {
  float maximum;
  float total;
  float* sum;  // (head_dim)
};

struct Arithmetic {
  /// y (rows, kPanel) = x (rows, inputs) times panel (inputs, kPanel); rows % kRowPad == 0.
  void (*multiply)(const float* panel, int inputs, const float* x, int rows, float* y);
  /// Adds keys first..last-1 of a tile to `state`, in that order. q (head_dim); k (head_dim,
  /// kTileKeys); v (kTileKeys, head_dim). What the other places of the tile hold has no effect.
  void (*attend)(const float* q, const float* k, const float* v, int first, int last, int head_dim,
                 float scale, RunningSoftmax& state);
};

const Arithmetic& baseline_arithmetic();
#if defined(__x86_64__)
const Arithmetic& avx2_arithmetic();  // only where the processor has AVX2 and FMA
#endif

}  // namespace coppice::reference
