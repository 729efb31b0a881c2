// Bodies of arithmetic.h, included once by each dispatch target's file, which first defines
// COPPICE_ARITHMETIC (its function's name) and renames Eigen's namespace when it is compiled with
// other instruction flags: two copies of one inline function would break the one-definition rule.
// For the same reason nothing of std that is not inlined may be used here.
//
// Why the bits of an output do not depend on the number of rows: Eigen cuts the inner dimension
// into blocks by the cache sizes alone, which are fixed below; and because kPanel and kRowPad are
// multiples of the micro-kernel's sides, every output is computed by that one micro-kernel.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_STACK_ALLOCATION_LIMIT \
  (256 * 1024)  // the packed blocks of a product stay on the stack

#include <Eigen/Core>
#include <cmath>

#include "kernels/reference/arithmetic.h"

namespace coppice::reference {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic>;  // column-major
using Micro = Eigen::internal::gebp_traits<float, float>;
static_assert(kPanel % Micro::mr == 0 &&
              (Micro::mr == 2 * Micro::LhsProgress || Micro::mr == 3 * Micro::LhsProgress));
static_assert(kRowPad % Micro::nr == 0);

void multiply(const float* panel, int inputs, const float* x, int rows, float* y) {
  const Eigen::Map<const Matrix> weight(panel, kPanel, inputs);
  const Eigen::Map<const Matrix> columns(x, inputs, rows);
  Eigen::Map<Matrix> out(y, kPanel, rows);
  out.noalias() = weight * columns;
}

void attend(const float* q, const float* k, const float* v, int first, int last, int head_dim,
            float scale, RunningSoftmax& state) {
  using Scores = Eigen::Array<float, kTileKeys, 1>;
  Scores scores = Scores::Zero();
  for (int d = 0; d < head_dim; ++d) scores += q[d] * Eigen::Map<const Scores>(k + d * kTileKeys);
  scores *= scale;

  float maximum = state.maximum;
  for (int i = first; i < last; ++i) maximum = scores[i] > maximum ? scores[i] : maximum;
  // Equal: no new maximum, or both still -inf, whose difference would be NaN.
  const float kept = state.maximum == maximum ? 1.0f : ::expf(state.maximum - maximum);
  state.maximum = maximum;
  state.total *= kept;
  Eigen::Map<Eigen::ArrayXf> sum(state.sum, head_dim);
  sum *= kept;
  for (int i = first; i < last; ++i) {
    const float weight = ::expf(scores[i] - maximum);
    state.total += weight;
    sum += weight * Eigen::Map<const Eigen::ArrayXf>(v + i * head_dim, head_dim);
  }
}

}  // namespace

const Arithmetic& COPPICE_ARITHMETIC() {
  static const bool blocking_fixed = [] {
    Eigen::setCpuCacheSizes(32 << 10, 1 << 20, 4 << 20);
    return true;
  }();
  static_cast<void>(blocking_fixed);
  static constexpr Arithmetic kArithmetic{&multiply, &attend};
  return kArithmetic;
}

}  // namespace coppice::reference
