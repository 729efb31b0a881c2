// What each op of kernels/backend.h means, as one plain loop in double precision, beside a bound on
// how far a backend's float result may be from it. The bound follows the data: it grows with the
// sizes of the terms that were summed.
//
//   const auto expected = oracle::linear(op, {&weight.view, 1}, false, precision);
//   expect_within(expected, y);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "tests/backend_cases.h"

namespace coppice::test {

struct Expected {
  double value = 0.0;
  double bound = 0.0;
};

inline void expect_within(std::span<const Expected> expected, const float* got) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - expected[i].value), expected[i].bound)
        << "at " << i << ": got " << got[i] << ", expected " << expected[i].value;
  }
}

namespace oracle {

/// All rows of all parts, (rows, cols).
inline std::vector<float> matrix(std::span<const TensorView> parts) {
  std::vector<float> out, row;
  for (const TensorView& part : parts) {
    row.resize(static_cast<size_t>(part.cols));
    for (int64_t r = 0; r < part.rows; ++r) {
      dequantise_row(part, r, row);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

inline std::vector<double> rms_norm(const float* x, const float* weight, double eps, int dim) {
  double squares = 0.0;
  for (int i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
  std::vector<double> y(static_cast<size_t>(dim));
  for (int i = 0; i < dim; ++i) y[i] = x[i] / std::sqrt(squares / dim + eps) * weight[i];
  return y;
}

inline double activated(Activation activation, double x) {
  if (activation == Activation::silu) return x / (1.0 + std::exp(-x));
  if (activation == Activation::gelu_tanh) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

/// sum_i w[i] x[i]. Rounding x to 8 bits with a block's scale s = max|x| / 127 moves each x[i] by
/// at most s / 2, so the sum by at most s / 2 sum|w|. Float rounding: a weight d q + m may be
/// multiplied as two terms, so a term's size is taken from the largest weight of its block.
inline Expected dot(const float* w, std::span<const double> x, Precision precision) {
  Expected out;
  for (size_t block = 0; block < x.size(); block += 32) {
    const size_t end = std::min(block + 32, x.size());
    double largest_w = 0.0, largest_x = 0.0, sum_w = 0.0, sum_x = 0.0;
    for (size_t i = block; i < end; ++i) {
      out.value += w[i] * x[i];
      largest_w = std::max(largest_w, std::abs(static_cast<double>(w[i])));
      largest_x = std::max(largest_x, std::abs(x[i]));
      sum_w += std::abs(w[i]);
      sum_x += std::abs(x[i]);
    }
    out.bound += precision.rounding * largest_w * sum_x;
    if (precision.quantises_activations) out.bound += 0.5 * largest_x / 127.0 * sum_w;
  }
  return out;
}

/// Values of op.y, (rows, outputs), as they will be; call before running the op.
inline std::vector<Expected> linear(const Linear& op, std::span<const TensorView> parts, bool gated,
                                    Precision precision) {
  constexpr double kSteepest = 1.13;  // no activation's slope is larger
  const std::vector<float> w = matrix(parts);
  const int inputs = static_cast<int>(parts[0].cols);
  const int outputs = static_cast<int>(w.size()) / inputs / (gated ? 2 : 1);
  std::vector<Expected> out;
  for (int r = 0; r < op.rows; ++r) {
    const float* row =
        op.x + static_cast<size_t>(op.gather != nullptr ? op.gather[r] : r) * op.x_stride;
    std::vector<double> x(row, row + inputs);
    if (op.norm != nullptr) x = rms_norm(row, op.norm, op.norm_eps, inputs);
    for (int c = 0; c < outputs; ++c) {
      Expected y = dot(w.data() + static_cast<size_t>(c) * inputs, x, precision);
      if (op.bias != nullptr) y.value += op.bias[c];
      y.value = activated(op.activation, y.value);
      y.bound *= op.activation == Activation::none ? 1.0 : kSteepest;
      if (gated) {
        const Expected up = dot(w.data() + static_cast<size_t>(outputs + c) * inputs, x, precision);
        y.bound = y.bound * std::abs(up.value) + std::abs(y.value) * up.bound + y.bound * up.bound;
        y.value *= up.value;
      }
      const double before = op.accumulate ? op.y[static_cast<size_t>(r) * op.y_stride + c] : 0.0;
      y.bound += 1e-6 * (std::abs(before) + std::abs(y.value)) + 1e-30;
      y.value += before;
      out.push_back(y);
    }
  }
  return out;
}

/// Values of op.out, (rows, dim).
inline std::vector<Expected> embed(const Embed& op, const TensorView& table) {
  const std::vector<float> rows = matrix({&table, 1});
  std::vector<Expected> out;
  for (int r = 0; r < op.rows; ++r) {
    const float* row = rows.data() + static_cast<size_t>(op.token[r]) * table.cols;
    double largest = 0.0;
    for (int i = 0; i < table.cols; ++i) largest = std::max<double>(largest, std::abs(row[i]));
    for (int i = 0; i < table.cols; ++i) {
      const double scale = op.scale;
      out.push_back({row[i] * scale, 1e-6 * largest * std::abs(scale)});
    }
  }
  return out;
}

/// Values of op.x, (rows, dim); call before running the op.
inline std::vector<Expected> add_norm(const AddNorm& op) {
  std::vector<Expected> out;
  for (int r = 0; r < op.rows; ++r) {
    const size_t row = static_cast<size_t>(r) * op.dim;
    const auto normed = rms_norm(op.y + row, op.weight, op.eps, op.dim);
    for (int i = 0; i < op.dim; ++i) {
      const double x = op.x[row + i];
      out.push_back({x + normed[i], 2e-6 * (std::abs(x) + std::abs(normed[i])) + 1e-30});
    }
  }
  return out;
}

/// The k best indices of x, (cols): larger first, then lower index first; NaN last.
inline std::vector<int32_t> top_k(const float* x, int cols, int k) {
  std::vector<int32_t> best;
  while (static_cast<int>(best.size()) < k) {
    int32_t next = -1;
    for (int32_t i = 0; i < cols; ++i) {
      if (std::find(best.begin(), best.end(), i) != best.end()) continue;
      if (next < 0 || x[i] > x[next] || (std::isnan(x[next]) && !std::isnan(x[i]))) next = i;
    }
    best.push_back(next);
  }
  return best;
}

/// Head `h` of a row's Q, K, V, (head_dim), normed where `norm` is given, and rotated.
inline std::vector<double> rotated(const Attention& op, int row, int h, const float* norm) {
  const int dim = op.kv.head_dim;
  const float* x = op.qkv + (static_cast<size_t>(row) * (op.heads + 2 * op.kv.kv_heads) + h) * dim;
  std::vector<double> y(x, x + dim);
  if (norm != nullptr) y = rms_norm(x, norm, op.norm_eps, dim);
  const float* rotary = op.rotary + static_cast<size_t>(op.row[row].position) * dim;
  for (int i = 0; i < dim / 2; ++i) {
    const int a = op.style == RotaryStyle::adjacent ? 2 * i : i;
    const int b = op.style == RotaryStyle::adjacent ? 2 * i + 1 : i + dim / 2;
    const double cosine = rotary[2 * i], sine = rotary[2 * i + 1];
    const double turned = y[a] * cosine - y[b] * sine;
    y[b] = y[a] * sine + y[b] * cosine;
    y[a] = turned;
  }
  return y;
}

/// What stands in `slot` of a row's sequence: K and V of one head, (head_dim) each.
struct StoredKey {
  std::vector<double> k, v;
};
inline StoredKey stored_key(const Attention& op, const AttentionRow& row, int slot, int kv_head) {
  const int dim = op.kv.head_dim, place = slot % kPageSlots;
  const auto* page = reinterpret_cast<const uint16_t*>(
      op.kv.base + op.pages[row.page_table + slot / kPageSlots] * op.kv.page_stride);
  const uint16_t* k = page + static_cast<size_t>(kv_head) * dim * kPageSlots + place;
  const uint16_t* v =
      page + (static_cast<size_t>(op.kv.kv_heads + kv_head) * kPageSlots + place) * dim;
  StoredKey key;
  for (int d = 0; d < dim; ++d) {
    key.k.push_back(half_to_float(k[d * kPageSlots]));
    key.v.push_back(half_to_float(v[d]));
  }
  return key;
}

/// Values of op.out, (rows, heads head_dim), from K and V as the op has stored them: call after it.
/// An error e of the scores changes each softmax weight by a factor of at most exp(2e).
inline std::vector<Expected> attention(const Attention& op, Precision precision) {
  const int dim = op.kv.head_dim;
  std::vector<Expected> out;
  for (int r = 0; r < op.rows; ++r) {
    const AttentionRow& row = op.row[r];
    const int first = op.window == 0 ? 0 : std::max(0, row.position - op.window + 1);
    for (int h = 0; h < op.heads; ++h) {
      const auto q = rotated(op, r, h, op.q_norm);
      std::vector<StoredKey> keys;
      std::vector<double> scores;
      double score_error = 0.0;
      for (int p = first; p <= row.position; ++p) {
        const int slot = p < row.prefix ? p : op.tail_slots[row.tail + p - row.prefix];
        keys.push_back(stored_key(op, row, slot, h / (op.heads / op.kv.kv_heads)));
        double score = 0.0, size = 0.0;
        for (int d = 0; d < dim; ++d) {
          score += q[d] * keys.back().k[d];
          size += std::abs(q[d] * keys.back().k[d]);
        }
        scores.push_back(op.scale * score);
        score_error = std::max(score_error, precision.rounding * op.scale * size);
      }
      const double maximum = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      for (double& score : scores) total += score = std::exp(score - maximum);
      for (int d = 0; d < dim; ++d) {
        Expected y;
        for (size_t i = 0; i < keys.size(); ++i) {
          const double term = scores[i] / total * keys[i].v[d];
          y.value += term;
          y.bound += std::abs(term) * (2.0 * score_error + precision.rounding);
        }
        out.push_back(y);
      }
    }
  }
  return out;
}

}  // namespace oracle
}  // namespace coppice::test
