// Flash-style attention over KV pages and token trees, one function table per dispatch target.
// Source: Dao 2022 (running softmax), Milakov and Gimelshein 2018 (its merge).
//
// Keys are visited in position order, in blocks of kPageSlots positions. Blocks are grouped in
// ranges of kRangeBlocks: a range has a softmax of its own (all its scores, then their maximum,
// then the values), and ranges are merged in order. So a row's bits depend on its keys by position
// alone: not on where they are stored, which rows are beside it, or which thread took which range.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace coppice::cpu {

/// Positions 0..255, 256..511, ...: the unit that threads share out for a few rows of long context.
inline constexpr int kRangeBlocks = 8;
inline constexpr int kRangePositions = kRangeBlocks * kPageSlots;

/// Rows of one sequence that read K and V together: rows first..first+count-1 of the op.
struct RowTile {
  int first = 0;
  int count = 0;
};

/// A query's softmax so far, in floats: maximum, lane sums and values (attention_blocks.h). A tile
/// keeps (count, heads of the group) of them for each KV head.
size_t attention_state_floats(int head_dim);

/// Where the queries of a row and KV head begin in q: (kv_heads, rows, heads of the group,
/// head_dim).
inline size_t query_offset(const Attention& op, int row, int kv_head) {
  const size_t group = static_cast<size_t>(op.heads / op.kv.kv_heads);
  return (static_cast<size_t>(kv_head) * op.rows + row) * group * op.kv.head_dim;
}

/// Backends refuse wider heads.
inline constexpr int kLargestHeadDim = 512;

/// Scratch that one thread needs for AttentionKernels::attend.
struct AttentionScratch {
  float* scores = nullptr;       // (kRangeBlocks, rows of a tile, heads of the group, kPageSlots)
  float* page_scores = nullptr;  // (rows of a tile, heads of the group, kPageSlots)
};

struct AttentionKernels {
  /// Norm and rotary of one row's queries of one KV head, scaled so that scores are in units of
  /// log2 e, into q.
  void (*prepare_queries)(const Attention& op, int row, int kv_head, float* q);

  /// Norm and rotary of one row's K of one KV head, which goes to the row's slot, as its V does.
  void (*store_kv)(const Attention& op, int row, int kv_head);

  /// Runs the tile's queries of one KV head over the keys of one range, 64-byte aligned state
  /// (count, heads of the group, attention_state_floats), which is overwritten.
  void (*attend)(const Attention& op, RowTile tile, int kv_head, int range, const float* q,
                 const AttentionScratch& scratch, float* state);

  /// total += part for `queries` states, in the order of positions.
  void (*merge)(int queries, int head_dim, const float* part, float* total);

  /// Writes the tile's outputs of one KV head from its merged states.
  void (*finish)(const Attention& op, RowTile tile, int kv_head, const float* state);
};

/// `target`: one of Highway's target bits.
const AttentionKernels& attention_kernels(int64_t target);

/// Copies one KV head's K and V for every move of the op, in order.
void move_kv(const MoveKv& op, int kv_head);

/// First and last range that any row of the tile reads.
struct RangeSpan {
  int first = 0;
  int last = 0;
};
RangeSpan ranges_of(const Attention& op, RowTile tile);

/// The largest tile whose keys are worth sharing: enough queries to hide the conversion of K and V.
int rows_per_tile(const Attention& op);

}  // namespace coppice::cpu
