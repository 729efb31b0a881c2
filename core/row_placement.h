// Where the rows of a ragged batch stand in the KV cache and which slots each of them attends to.
//
//   PlacedRows placed;
//   place_rows(parent, sequences, placed);
//   attention.row = placed.rows.data();
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace coppice {

/// Rows of one sequence: `count` rows of the batch from `first` on. They follow the rows that
/// earlier forwards wrote into its tail, so a tree can grow level by level: row i of them (from 0)
/// is row written.size() + i of the tail and stands in slot committed + written.size() + i. `pages`
/// is the sequence's page table, its tail reserved.
struct SequenceRows {
  int first = 0;
  int count = 0;
  int committed = 0;
  std::span<const int32_t> pages;
  std::span<const int32_t> written = {};  // parent of each row already in the tail, as below
};

/// What Attention needs of every row; kept between calls so that a step allocates nothing.
struct PlacedRows {
  std::vector<AttentionRow> rows;
  std::vector<int32_t> tail_slots;
  std::vector<int32_t> pages;
  std::vector<AttentionRow> tail;  // of the sequence at hand, rows already written included
};

/// `parent`: row of the sequence's tail that each row hangs under, an earlier one; -1: it follows
/// the committed tokens. A row's position is the committed count plus its number of ancestors, and
/// it attends to the committed tokens, its ancestors and itself. A batch that breaks its contract
/// aborts.
void place_rows(std::span<const int32_t> parent, std::span<const SequenceRows> sequences,
                PlacedRows& placed);

}  // namespace coppice
