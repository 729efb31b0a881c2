// The reference's ops that work on one row at a time: norms, copies, top-k, moves of cached K, V.
//
//   run(TopK{.x = logits, .x_stride = vocab, .rows = 1, .cols = vocab, .k = 1, ...}, workspace);
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/reference/ops.h"
#include "kernels/shared/judge.h"

namespace coppice::reference {

void rms_norm(const float* x, const float* weight, float eps, int dim, float* y) {
  double squares = 0.0;
  for (int i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
  const auto scale = static_cast<float>(1.0 / std::sqrt(squares / dim + eps));
  for (int i = 0; i < dim; ++i) y[i] = x[i] * scale * weight[i];
}

void run(const AddNorm& op, Workspace& workspace) {
  COPPICE_CHECK(op.dim > 0);
  COPPICE_CHECK(op.rows == 0 || (op.x != nullptr && op.y != nullptr && op.weight != nullptr));
  workspace.pool.for_each(op.rows, [&](int r, int worker) {
    float* normed = workspace.own(worker, static_cast<size_t>(op.dim));
    rms_norm(op.y + static_cast<size_t>(r) * op.dim, op.weight, op.eps, op.dim, normed);
    float* x = op.x + static_cast<size_t>(r) * op.dim;
    for (int i = 0; i < op.dim; ++i) x[i] += normed[i];
  });
}

void run(const Copy& op, Workspace&) {
  COPPICE_CHECK(op.rows == 0 || (op.x != nullptr && op.out != nullptr));
  COPPICE_CHECK(op.rows <= 1 || (op.x_stride >= op.dim && op.out_stride >= op.dim));
  for (int r = 0; r < op.rows; ++r) {
    std::copy_n(op.x + static_cast<size_t>(r) * op.x_stride, op.dim,
                op.out + static_cast<size_t>(r) * op.out_stride);
  }
}

void run(const MoveKv& op, Workspace&) {
  COPPICE_CHECK(op.count == 0 || (op.from != nullptr && op.to != nullptr));
  COPPICE_CHECK(op.count == 0 || op.kv.base != nullptr);
  const int keys = op.kv.kv_heads * op.kv.head_dim;  // a page's K: (keys, kPageSlots), then V
  for (int i = 0; i < op.count; ++i) {
    COPPICE_CHECK(op.from[i] >= 0 && op.to[i] >= 0);
    const auto* from = reinterpret_cast<const uint16_t*>(
        op.kv.base + static_cast<size_t>(op.from[i] / kPageSlots) * op.kv.page_stride);
    auto* to = reinterpret_cast<uint16_t*>(op.kv.base + static_cast<size_t>(op.to[i] / kPageSlots) *
                                                            op.kv.page_stride);
    const int from_place = op.from[i] % kPageSlots;
    const int to_place = op.to[i] % kPageSlots;
    for (int d = 0; d < keys; ++d) {
      to[d * kPageSlots + to_place] = from[d * kPageSlots + from_place];
    }
    for (int head = 0; head < op.kv.kv_heads; ++head) {
      const int row = (op.kv.kv_heads + head) * kPageSlots;
      std::memmove(to + static_cast<size_t>(row + to_place) * op.kv.head_dim,
                   from + static_cast<size_t>(row + from_place) * op.kv.head_dim,
                   static_cast<size_t>(op.kv.head_dim) * sizeof(uint16_t));
    }
  }
}

void run(const TopK& op, Workspace& workspace) {
  COPPICE_CHECK(op.k >= 1 && op.k <= op.cols);
  COPPICE_CHECK(op.rows == 0 || (op.x != nullptr && op.index != nullptr && op.value != nullptr));
  COPPICE_CHECK(op.rows <= 1 || op.x_stride >= op.cols);
  workspace.pool.for_each(op.rows, [&](int r, int worker) {
    const float* x = op.x + static_cast<size_t>(r) * op.x_stride;
    int32_t* order = workspace.own_indices(worker, static_cast<size_t>(op.cols));
    std::iota(order, order + op.cols, 0);
    // NaN is below every number, so that the comparison orders whatever stands in the row.
    std::partial_sort(order, order + op.k, order + op.cols, [x](int32_t a, int32_t b) {
      if (x[a] > x[b] || x[a] < x[b]) return x[a] > x[b];
      const bool a_nan = std::isnan(x[a]), b_nan = std::isnan(x[b]);
      return a_nan == b_nan ? a < b : b_nan;
    });
    for (int i = 0; i < op.k; ++i) {
      op.index[static_cast<size_t>(r) * op.k + i] = order[i];
      op.value[static_cast<size_t>(r) * op.k + i] = x[order[i]];
    }
  });
}

void run(const Judge& op, Workspace&) {
  judge(op);
}

void run(const AllReduce& op, Workspace&) {
  if (op.x == nullptr) return;
  const size_t values = static_cast<size_t>(op.rows) * op.dim;
  for (size_t i = 0; i < values; ++i) op.x[i] += op.y[i];
}

}  // namespace coppice::reference
