// Where attention's keys stand and which of them a row sees: the part of it that needs no vectors.
//
//   Lanes lanes = visible_lanes(op, {row, 1}, block * kPageSlots, kPageSlots);
//   int32_t place = place_of(op, op.row[row], block * kPageSlots + lanes.begin);
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention.h"

namespace coppice::cpu {

/// Layout of a query's softmax so far, in floats: maximum, lane sums, values.
inline constexpr int kStateHeader = 16;
inline constexpr int kStateValues = kStateHeader + kPageSlots;

inline int padded_head_dim(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}
/// No keys seen yet.
void reset_states(int queries, int head_dim, float* state);

/// Lanes begin..end-1 of a run of positions.
struct Lanes {
  int begin = 0;
  int end = 0;
  bool empty() const { return begin >= end; }
  bool operator==(const Lanes&) const = default;
};

/// Positions start + lane, lane < count, from the first to the last that some row of the tile sees.
Lanes visible_lanes(const Attention& op, RowTile rows, int start, int count);

/// Positions start + lane, lane < count, that every row of the tile sees and finds in the slot of
/// the same number.
Lanes shared_lanes(const Attention& op, RowTile rows, int start, int count);

/// First position that some row of the tile may find in a slot of another number.
int first_displaced(const Attention& op, RowTile rows);

inline int32_t slot_of(const Attention& op, const AttentionRow& row, int position) {
  return position < row.prefix ? position : op.tail_slots[row.tail + position - row.prefix];
}

/// The lowest page of the sequence's table above `page` that holds a key of this block for some row
/// of the tile; -1: there is none.
int next_page(const Attention& op, RowTile rows, int block, int page);

/// A place is page * kPageSlots + index in the page; a row's slots name places through its pages.
inline int32_t place_of_slot(const Attention& op, const AttentionRow& row, int32_t slot) {
  return op.pages[row.page_table + slot / kPageSlots] * kPageSlots + slot % kPageSlots;
}

/// Place of the key of a position.
inline int32_t place_of(const Attention& op, const AttentionRow& row, int position) {
  return place_of_slot(op, row, slot_of(op, row, position));
}

/// K at a place: channel c at [c * kPageSlots].
inline uint16_t* keys_at(const KvLayer& kv, int32_t place, int kv_head) {
  auto* page = reinterpret_cast<uint16_t*>(kv.base + place / kPageSlots * kv.page_stride);
  return page + static_cast<size_t>(kv_head) * kv.head_dim * kPageSlots + place % kPageSlots;
}
/// V at a place: channel c at [c].
inline uint16_t* values_at(const KvLayer& kv, int32_t place, int kv_head) {
  auto* page = reinterpret_cast<uint16_t*>(kv.base + place / kPageSlots * kv.page_stride);
  const size_t keys = static_cast<size_t>(kv.kv_heads) * kv.head_dim * kPageSlots;
  return page + keys +
         (static_cast<size_t>(kv_head) * kPageSlots + place % kPageSlots) * kv.head_dim;
}

/// One KV head's K or V of a block that is needed a few blocks later: head_dim lines of memory,
/// fetched while as many are read. Null for a block without committed keys: the machine ignores it.
class Ahead {
 public:
  Ahead() = default;
  explicit Ahead(const uint16_t* block) : block_(reinterpret_cast<uintptr_t>(block)) {}
  /// Asks for the line that holds the half at this place. g++ drops calls of a function that does
  /// nothing but prefetch, so it must not be one.
  [[gnu::always_inline]] void fetch(size_t place) const {
    __builtin_prefetch(reinterpret_cast<const void*>(block_ + place * sizeof(uint16_t)), 0, 2);
  }

 private:
  uintptr_t block_ = 0;
};

/// Whether the row's first key of a block stands in a committed page, and the place there.
inline bool begins_committed(const AttentionRow& row, int block) {
  return block * kPageSlots <= row.position && block * kPageSlots < row.prefix;
}
inline int32_t place_of_block(const Attention& op, const AttentionRow& row, int block) {
  return op.pages[row.page_table + block] * kPageSlots;
}
inline Ahead keys_ahead(const Attention& op, const AttentionRow& row, int kv_head, int block) {
  if (!begins_committed(row, block)) return {};
  return Ahead(keys_at(op.kv, place_of_block(op, row, block), kv_head));
}
inline Ahead values_ahead(const Attention& op, const AttentionRow& row, int kv_head, int block) {
  if (!begins_committed(row, block)) return {};
  return Ahead(values_at(op.kv, place_of_block(op, row, block), kv_head));
}

}  // namespace coppice::cpu
