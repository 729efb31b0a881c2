// The reference's attention: K and V go to the cache first, then every row reads its keys as they
// are stored, in position order, one page-sized block of positions at a time with a running softmax
// (Milakov & Gimelshein 2018). Block edges are absolute positions, so a row's bits depend on its
// own keys alone, not on which slots hold them or on the rows beside it.
//
//   run(Attention{.qkv = qkv, .rows = 3, .heads = 9, ...}, workspace);
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/reference/ops.h"

namespace coppice::reference {
namespace {

static_assert(kTileKeys == kPageSlots);

constexpr int kGroupRows = 16;  // rows of one task: they share the tiles that they have in common

void check(const Attention& op) {
  COPPICE_CHECK(op.heads > 0 && op.kv.kv_heads > 0 && op.heads % op.kv.kv_heads == 0);
  COPPICE_CHECK(op.kv.head_dim > 0 && op.kv.head_dim % 2 == 0);
  COPPICE_CHECK(op.kv.base != nullptr && op.row != nullptr && op.pages != nullptr);
  COPPICE_CHECK(op.qkv != nullptr && op.rotary != nullptr && op.out != nullptr);
  COPPICE_CHECK(op.window >= 0);
}

/// Page and place of the key at `position` among a row's keys, as one number.
int32_t physical_slot(const Attention& op, const AttentionRow& row, int position) {
  const int slot =
      position < row.prefix ? position : op.tail_slots[row.tail + position - row.prefix];
  return op.pages[row.page_table + slot / kPageSlots] * kPageSlots + slot % kPageSlots;
}

uint16_t* page_of(const KvLayer& kv, int32_t physical) {
  return reinterpret_cast<uint16_t*>(kv.base +
                                     static_cast<size_t>(physical / kPageSlots) * kv.page_stride);
}
size_t k_offset(const KvLayer& kv, int kv_head, int d, int place) {
  return (static_cast<size_t>(kv_head) * kv.head_dim + d) * kPageSlots + place;
}
size_t v_offset(const KvLayer& kv, int kv_head, int place) {
  return (static_cast<size_t>(kv.kv_heads + kv_head) * kPageSlots + place) * kv.head_dim;
}

/// Norms (where there is one) and rotates the head at x into out, both (head_dim).
void rotate_head(const Attention& op, const float* x, const float* norm, int position, float* out) {
  const int dim = op.kv.head_dim;
  if (norm != nullptr) {
    rms_norm(x, norm, op.norm_eps, dim, out);
  } else {
    std::copy_n(x, dim, out);
  }
  const float* rotary = op.rotary + static_cast<size_t>(position) * dim;
  const bool adjacent = op.style == RotaryStyle::adjacent;
  for (int i = 0; i < dim / 2; ++i) {
    float& a = out[adjacent ? 2 * i : i];
    float& b = out[adjacent ? 2 * i + 1 : i + dim / 2];
    const float cosine = rotary[2 * i], sine = rotary[2 * i + 1];
    const float turned = a * cosine - b * sine;
    b = a * sine + b * cosine;
    a = turned;
  }
}

/// Stores the row's K and V; leaves its rotated Q, (heads, head_dim), in `q`.
void prepare_row(const Attention& op, int r, float* head, float* q) {
  const AttentionRow& row = op.row[r];
  const KvLayer& kv = op.kv;
  COPPICE_CHECK(row.position >= 0 && row.prefix >= 0 && row.slot >= 0);
  const int32_t physical =
      op.pages[row.page_table + row.slot / kPageSlots] * kPageSlots + row.slot % kPageSlots;
  COPPICE_CHECK(physical == physical_slot(op, row, row.position));

  const size_t width = static_cast<size_t>(op.heads + 2 * kv.kv_heads) * kv.head_dim;
  const float* x = op.qkv + r * width;
  for (int h = 0; h < op.heads; ++h, x += kv.head_dim, q += kv.head_dim) {
    rotate_head(op, x, op.q_norm, row.position, q);
  }
  uint16_t* page = page_of(kv, physical);
  const int place = physical % kPageSlots;
  for (int h = 0; h < kv.kv_heads; ++h, x += kv.head_dim) {
    rotate_head(op, x, op.k_norm, row.position, head);
    for (int d = 0; d < kv.head_dim; ++d) {
      page[k_offset(kv, h, d, place)] = float_to_half(head[d]);
    }
  }
  for (int h = 0; h < kv.kv_heads; ++h, x += kv.head_dim) {
    uint16_t* v = page + v_offset(kv, h, place);
    for (int d = 0; d < kv.head_dim; ++d) v[d] = float_to_half(x[d]);
  }
}

/// One head's K and V of a block of positions as floats. Rows whose keys stand in the same slots
/// reuse what an earlier row loaded.
class Tile {
 public:
  /// `memory` has floats_needed() floats.
  Tile(const KvLayer& kv, int kv_head, float* memory)
      : kv_(kv), kv_head_(kv_head), k_(memory), v_(memory + kTileKeys * kv.head_dim) {
    std::fill_n(memory, floats_needed(kv), 0.0f);
    std::fill_n(loaded_, kTileKeys, -1);
  }
  static size_t floats_needed(const KvLayer& kv) { return size_t{2} * kTileKeys * kv.head_dim; }

  void load(int place, int32_t physical) {
    if (loaded_[place] == physical) return;
    loaded_[place] = physical;
    const uint16_t* page = page_of(kv_, physical);
    const int from = physical % kPageSlots;
    const uint16_t* v = page + v_offset(kv_, kv_head_, from);
    for (int d = 0; d < kv_.head_dim; ++d) {
      k_[d * kTileKeys + place] = half_to_float(page[k_offset(kv_, kv_head_, d, from)]);
      v_[place * kv_.head_dim + d] = half_to_float(v[d]);
    }
  }
  const float* k() const { return k_; }  // (head_dim, kTileKeys)
  const float* v() const { return v_; }  // (kTileKeys, head_dim)

 private:
  const KvLayer& kv_;
  int kv_head_;
  float* k_;
  float* v_;
  int32_t loaded_[kTileKeys];
};

int first_key(const Attention& op, const AttentionRow& row) {
  return op.window == 0 ? 0 : std::max(0, row.position - op.window + 1);
}

/// Rows first_row.. of one group, for the query heads that share kv_head.
void attend_group(const Attention& op, int first_row, int rows, int kv_head, const float* q,
                  Workspace& workspace, int worker) {
  const int dim = op.kv.head_dim;
  const int heads = op.heads / op.kv.kv_heads;
  float* memory = workspace.own(
      worker, Tile::floats_needed(op.kv) + static_cast<size_t>(rows) * heads * (dim + 2));
  Tile tile(op.kv, kv_head, memory);
  float* sums = memory + Tile::floats_needed(op.kv);
  float* maxima = sums + rows * heads * dim;
  float* totals = maxima + rows * heads;
  std::fill_n(sums, rows * heads * dim, 0.0f);
  std::fill_n(maxima, rows * heads, -std::numeric_limits<float>::infinity());
  std::fill_n(totals, rows * heads, 0.0f);

  int first_block = std::numeric_limits<int>::max(), last_block = 0;
  for (int r = 0; r < rows; ++r) {
    const AttentionRow& row = op.row[first_row + r];
    first_block = std::min(first_block, first_key(op, row) / kTileKeys);
    last_block = std::max(last_block, row.position / kTileKeys);
  }
  for (int block = first_block; block <= last_block; ++block) {
    const int start = block * kTileKeys;
    for (int r = 0; r < rows; ++r) {
      const AttentionRow& row = op.row[first_row + r];
      const int first = std::max(0, first_key(op, row) - start);
      const int last = std::min(kTileKeys, row.position + 1 - start);
      if (first >= last) continue;
      for (int i = first; i < last; ++i) tile.load(i, physical_slot(op, row, start + i));
      for (int h = 0; h < heads; ++h) {
        const int state = r * heads + h;
        const size_t head = static_cast<size_t>(first_row + r) * op.heads + kv_head * heads + h;
        RunningSoftmax softmax{maxima[state], totals[state], sums + state * dim};
        workspace.arithmetic.attend(q + head * dim, tile.k(), tile.v(), first, last, dim, op.scale,
                                    softmax);
        maxima[state] = softmax.maximum;
        totals[state] = softmax.total;
      }
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      const int state = r * heads + h;
      float* out =
          op.out + (static_cast<size_t>(first_row + r) * op.heads + kv_head * heads + h) * dim;
      for (int d = 0; d < dim; ++d) out[d] = sums[state * dim + d] / totals[state];
    }
  }
}

}  // namespace

void run(const Attention& op, Workspace& workspace) {
  if (op.rows == 0) return;
  check(op);
  const size_t q_width = static_cast<size_t>(op.heads) * op.kv.head_dim;
  float* q = workspace.shared(op.rows * q_width);
  workspace.pool.for_each(op.rows, [&](int r, int worker) {
    float* head = workspace.own(worker, static_cast<size_t>(op.kv.head_dim));
    prepare_row(op, r, head, q + r * q_width);
  });
  const int groups = (op.rows + kGroupRows - 1) / kGroupRows;
  workspace.pool.for_each(groups * op.kv.kv_heads, [&](int task, int worker) {
    const int first_row = task / op.kv.kv_heads * kGroupRows;
    const int rows = std::min(kGroupRows, op.rows - first_row);
    attend_group(op, first_row, rows, task % op.kv.kv_heads, q, workspace, worker);
  });
}

}  // namespace coppice::reference
