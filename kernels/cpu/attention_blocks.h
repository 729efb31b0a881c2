// Where attention's keys stand and which of them a row sees: the part of it that needs no vectors.
//
//   Lanes lanes = visible_lanes(op, {row, 1}, block);
//   locate_block(op, {row, 1}, kv_head, block, lanes, scratch, &view);   // view.keys, view.values
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention.h"

namespace coppice::cpu {

/// Layout of a query's running softmax, in floats: maximum, lane sums, values.
inline constexpr int kStateHeader = 16;
inline constexpr int kStateValues = kStateHeader + kPageSlots;

inline int padded_head_dim(int head_dim) {
  return (head_dim + 15) / 16 * 16;
}
/// No keys seen yet.
void reset_states(int queries, int head_dim, float* state);

/// Lanes begin..end-1 of a block of kPageSlots positions.
struct Lanes {
  int begin = 0;
  int end = 0;
  bool empty() const { return begin >= end; }
  bool operator==(const Lanes&) const = default;
};

/// Positions block * kPageSlots + lane that some row of the tile sees.
Lanes visible_lanes(const Attention& op, RowTile rows, int block);

/// One past the last of rows first..limit-1 whose keys of this block stand in the same slots as row
/// first's, as far as both see them.
int end_of_shared_source(const Attention& op, int first, int limit, int block);

struct BlockView {
  const uint16_t* keys = nullptr;                    // (head_dim, kPageSlots)
  std::array<const uint16_t*, kPageSlots> values{};  // [lane] -> (head_dim); visible lanes only
};

/// Finds the block of rows that share its source. K is read where it stands when one page holds all
/// visible lanes in place, else it is gathered: (head_dim, kPageSlots). Other lanes of keys hold
/// anything, NaN included.
void locate_block(const Attention& op, RowTile rows, int kv_head, int block, Lanes lanes,
                  uint16_t* gathered, BlockView* view);

/// A place is page * kPageSlots + index in the page; a row's slots name places through its pages.
inline int32_t place_of_slot(const Attention& op, const AttentionRow& row, int32_t slot) {
  return op.pages[row.page_table + slot / kPageSlots] * kPageSlots + slot % kPageSlots;
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

/// K and V of one KV head in one page, each head_dim lines of memory.
struct PageHead {
  const uint16_t* keys = nullptr;
  const uint16_t* values = nullptr;
};

/// The page that holds the row's first key of a block; null when the row has none there.
inline PageHead page_head(const Attention& op, int row, int kv_head, int block) {
  const AttentionRow& r = op.row[row];
  const int position = block * kPageSlots;
  if (position > r.position || position >= r.prefix) return {};
  const int32_t place = op.pages[r.page_table + block] * kPageSlots;
  return {keys_at(op.kv, place, kv_head), values_at(op.kv, place, kv_head)};
}

/// Asks for line `line` of both; an address that a null page gives is ignored by the machine.
inline void prefetch_lines(PageHead page, int line) {
  const size_t offset = static_cast<size_t>(line) * kPageSlots * sizeof(uint16_t);
  for (const uint16_t* base : {page.keys, page.values}) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(base) + offset));
  }
}

}  // namespace coppice::cpu
