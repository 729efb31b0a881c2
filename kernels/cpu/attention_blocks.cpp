// Positions to slots, block by block, and the states of the running softmax.
#include "kernels/cpu/attention_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

namespace coppice::cpu {
namespace {

/// First position that the row sees.
int window_begin(const Attention& op, const AttentionRow& row) {
  return op.window > 0 ? std::max(0, row.position - op.window + 1) : 0;
}

/// Place of the key of a position.
int32_t place_of(const Attention& op, const AttentionRow& row, int position) {
  return place_of_slot(
      op, row, position < row.prefix ? position : op.tail_slots[row.tail + position - row.prefix]);
}

/// The row that sees furthest: it names the slots of all rows that share its source.
const AttentionRow& furthest_row(const Attention& op, RowTile rows) {
  const auto nearer = [](const AttentionRow& a, const AttentionRow& b) {
    return a.position < b.position;
  };
  return *std::max_element(op.row + rows.first, op.row + rows.first + rows.count, nearer);
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

bool is_committed(const Attention& op, RowTile rows, int block) {
  const int start = block * kPageSlots, end = start + kPageSlots;
  return std::all_of(op.row + rows.first, op.row + rows.first + rows.count, [&](const auto& row) {
    return window_begin(op, row) <= start && end <= row.prefix && end <= row.position + 1;
  });
}

int end_of_shared_source(const Attention& op, int first, int limit, int block) {
  // Rows agree with the one that sees furthest, so they agree with each other.
  const AttentionRow* furthest = op.row + first;
  int end = first + 1;
  for (; end < limit; ++end) {
    const AttentionRow* nearer = op.row + end;
    const AttentionRow* further = furthest;
    if (nearer->position > further->position) std::swap(nearer, further);
    const int seen = std::min(nearer->position + 1, (block + 1) * kPageSlots);
    const bool same_list = nearer->prefix == further->prefix && nearer->tail == further->tail;
    if (!same_list && seen > std::min(nearer->prefix, further->prefix)) break;
    furthest = further;
  }
  return end;
}

const uint16_t* locate_keys(const Attention& op, RowTile rows, int kv_head, int block, Lanes lanes,
                            uint16_t* gathered) {
  const AttentionRow& row = furthest_row(op, rows);
  const int first_position = block * kPageSlots;
  if (first_position + lanes.end <= row.prefix) {
    return keys_at(op.kv, place_of_block(op, row, block), kv_head);
  }
  std::array<int32_t, kPageSlots> places{};
  bool in_place = true;
  for (int j = lanes.begin; j < lanes.end; ++j) {
    places[j] = place_of(op, row, first_position + j);
    in_place &= places[j] - j == places[lanes.begin] - lanes.begin;
  }
  // Of lane 0 if the first visible lane is in place: then a page begins there.
  const int32_t first_place = places[lanes.begin] - lanes.begin;
  const bool begins_page = first_place % kPageSlots == 0;
  if (in_place && begins_page) return keys_at(op.kv, first_place, kv_head);
  // Most lanes stand in place in the first one's page: take it whole, then mend the others.
  const int head_dim = op.kv.head_dim;
  if (begins_page) {
    std::memcpy(gathered, keys_at(op.kv, first_place, kv_head),
                sizeof(uint16_t) * head_dim * kPageSlots);
  }
  for (int j = lanes.begin; j < lanes.end; ++j) {
    if (begins_page && places[j] - j == first_place) continue;
    const uint16_t* key = keys_at(op.kv, places[j], kv_head);
    for (int c = 0; c < head_dim; ++c) gathered[c * kPageSlots + j] = key[c * kPageSlots];
  }
  return gathered;
}

void locate_values(const Attention& op, RowTile rows, int kv_head, int block, Lanes lanes,
                   const uint16_t** values) {
  const AttentionRow& row = furthest_row(op, rows);
  if (block * kPageSlots + lanes.end <= row.prefix) {
    const uint16_t* page = values_at(op.kv, place_of_block(op, row, block), kv_head);
    for (int j = lanes.begin; j < lanes.end; ++j) values[j] = page + j * op.kv.head_dim;
    return;
  }
  for (int j = lanes.begin; j < lanes.end; ++j) {
    values[j] = values_at(op.kv, place_of(op, row, block * kPageSlots + j), kv_head);
  }
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
