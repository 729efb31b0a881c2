// Positions to slots, block by block, and the states of the running softmax.
#include "kernels/cpu/attention_blocks.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace coppice::cpu {
namespace {

/// First position that the row sees.
int window_begin(const Attention& op, const AttentionRow& row) {
  return op.window > 0 ? std::max(0, row.position - op.window + 1) : 0;
}

}  // namespace

size_t attention_state_floats(int head_dim) {
  return static_cast<size_t>(kStateValues + padded_head_dim(head_dim));
}

void reset_states(int queries, int head_dim, float* state) {
  const size_t stride = attention_state_floats(head_dim);
  std::memset(state, 0, queries * stride * sizeof(float));
  for (int i = 0; i < queries; ++i) state[i * stride] = -std::numeric_limits<float>::infinity();
}

Lanes visible_lanes(const Attention& op, RowTile rows, int start, int count) {
  Lanes all{count, 0};
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const int begin = std::max(window_begin(op, op.row[r]) - start, 0);
    const int end = std::min(op.row[r].position + 1 - start, count);
    if (begin >= end) continue;
    all = {std::min(all.begin, begin), std::max(all.end, end)};
  }
  return all.empty() ? Lanes{} : all;
}

Lanes shared_lanes(const Attention& op, RowTile rows, int start, int count) {
  Lanes shared{0, count};
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const AttentionRow& row = op.row[r];
    shared.begin = std::max(shared.begin, window_begin(op, row) - start);
    shared.end = std::min({shared.end, row.prefix - start, row.position + 1 - start});
  }
  return shared.empty() ? Lanes{} : shared;
}

int first_displaced(const Attention& op, RowTile rows) {
  int first = std::numeric_limits<int>::max();
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    if (op.row[r].prefix <= op.row[r].position) first = std::min(first, op.row[r].prefix);
  }
  return first;
}

int next_page(const Attention& op, RowTile rows, int block, int page) {
  constexpr int kNone = std::numeric_limits<int>::max();
  const int start = block * kPageSlots;
  int next = kNone;
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const AttentionRow& row = op.row[r];
    const Lanes lanes = visible_lanes(op, {r, 1}, start, kPageSlots);
    if (lanes.empty()) continue;
    if (block > page && start + lanes.begin < row.prefix) next = std::min(next, block);
    for (int p = std::max(start + lanes.begin, row.prefix); p < start + lanes.end; ++p) {
      const int holder = slot_of(op, row, p) / kPageSlots;
      if (holder > page) next = std::min(next, holder);
    }
  }
  return next == kNone ? -1 : next;
}

void move_kv(const MoveKv& op, int kv_head) {
  for (int i = 0; i < op.count; ++i) {
    const uint16_t* from = keys_at(op.kv, op.from[i], kv_head);
    uint16_t* to = keys_at(op.kv, op.to[i], kv_head);
    for (int c = 0; c < op.kv.head_dim; ++c) to[c * kPageSlots] = from[c * kPageSlots];
    std::memmove(values_at(op.kv, op.to[i], kv_head), values_at(op.kv, op.from[i], kv_head),
                 sizeof(uint16_t) * op.kv.head_dim);
  }
}

RangeSpan ranges_of(const Attention& op, RowTile tile) {
  RangeSpan span{std::numeric_limits<int>::max(), 0};
  for (int r = tile.first; r < tile.first + tile.count; ++r) {
    span.first = std::min(span.first, window_begin(op, op.row[r]) / kRangePositions);
    span.last = std::max(span.last, op.row[r].position / kRangePositions);
  }
  return span;
}

int rows_per_tile(const Attention& op) {
  constexpr int kTileQueries = 48;
  return std::max(1, kTileQueries / (op.heads / op.kv.kv_heads));
}

}  // namespace coppice::cpu
