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

/// Place of the key of a position.
int32_t place_of(const Attention& op, const AttentionRow& row, int position) {
  return place_of_slot(
      op, row, position < row.prefix ? position : op.tail_slots[row.tail + position - row.prefix]);
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

Lanes visible_lanes(const Attention& op, RowTile rows, int block) {
  const int start = block * kPageSlots;
  Lanes all{kPageSlots, 0};
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const int begin = std::max(window_begin(op, op.row[r]) - start, 0);
    const int end = std::min(op.row[r].position + 1 - start, kPageSlots);
    if (begin >= end) continue;
    all = {std::min(all.begin, begin), std::max(all.end, end)};
  }
  return all.empty() ? Lanes{} : all;
}

int end_of_shared_source(const Attention& op, int first, int limit, int block) {
  const auto in_prefix = [&](const AttentionRow& row) {
    return std::min(row.position + 1, (block + 1) * kPageSlots) <= row.prefix;
  };
  const AttentionRow& a = op.row[first];
  const bool a_in_prefix = in_prefix(a);
  int end = first + 1;
  for (; end < limit; ++end) {
    const AttentionRow& b = op.row[end];
    const bool same_slots = a.prefix == b.prefix && a.tail == b.tail;
    if (!same_slots && !(a_in_prefix && in_prefix(b))) break;
  }
  return end;
}

void locate_block(const Attention& op, RowTile rows, int kv_head, int block, Lanes lanes,
                  uint16_t* gathered, BlockView* view) {
  // The row that sees furthest names the slots of all: they share their source.
  const AttentionRow* row = op.row + rows.first;
  for (int r = 1; r < rows.count; ++r) {
    if (op.row[rows.first + r].position > row->position) row = op.row + rows.first + r;
  }
  const int first_position = block * kPageSlots;
  if (first_position + lanes.end <= row->prefix) {
    const PageHead page = page_head(op, static_cast<int>(row - op.row), kv_head, block);
    view->keys = page.keys;
    for (int j = lanes.begin; j < lanes.end; ++j) {
      view->values[j] = page.values + j * op.kv.head_dim;
    }
    return;
  }
  std::array<int32_t, kPageSlots> places{};
  bool in_place = true;
  for (int j = lanes.begin; j < lanes.end; ++j) {
    places[j] = place_of(op, *row, first_position + j);
    view->values[j] = values_at(op.kv, places[j], kv_head);
    in_place &= places[j] - j == places[lanes.begin] - lanes.begin;
  }
  // Of lane 0 if the first visible lane is in place: then a page begins there.
  const int32_t first_place = places[lanes.begin] - lanes.begin;
  const bool begins_page = first_place % kPageSlots == 0;
  if (in_place && begins_page) {
    view->keys = keys_at(op.kv, first_place, kv_head);
    return;
  }
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
  view->keys = gathered;
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
  constexpr int kTileQueries = 32;
  return std::max(1, kTileQueries / (op.heads / op.kv.kv_heads));
}

}  // namespace coppice::cpu
