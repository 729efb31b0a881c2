// What the threads must agree on before they walk a list of ops: scratch memory large enough for
// the widest of them, and how attention's work is cut. Made by one thread, in passing over the
// list.
//
//   plan.prepare(ops, pool.size());      // grows memory only when a larger step arrives
//   const AttentionPlan& cut = plan.attention(op);
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/panels.h"

namespace coppice::cpu {

/// Up to this many rows, every thread quantises all of them for itself: that takes no longer than
/// the barrier behind work that is shared.
inline constexpr int kRowsEachThread = 3;

/// A row tile and the ranges of keys that it reads.
struct TileWork {
  RowTile rows;
  RangeSpan ranges;
  size_t first_part = 0;  // of its (range, kv_head) parts among all parts of the op, when split
};

/// How one attention op is cut. Ops over the same rows share a plan.
struct AttentionPlan {
  const AttentionRow* row = nullptr;
  int rows = 0;
  int window = 0;
  int kv_heads = 0;
  int group = 0;  // query heads of a KV head

  // KV heads 0..whole_heads-1 are prepared and attended by one thread each, all rows in one tile;
  // the others are cut.
  int whole_heads = 0;
  TileWork whole;
  size_t first_tile = 0;  // in StepPlan's tiles
  int tiles = 0;
  bool split = false;       // ranges are shared out too, and merged after a barrier
  int parts = 0;            // ranges over all tiles, for one KV head
  size_t part_queries = 0;  // queries over all parts, for one KV head
};

class StepPlan {
 public:
  void prepare(std::span<const Op> ops, int threads);

  const AttentionPlan& attention(const Attention& op) const;
  std::span<const TileWork> tiles(const AttentionPlan& plan) const {
    return {tiles_.data() + plan.first_tile, static_cast<size_t>(plan.tiles)};
  }

  /// Activations for a Linear's rows: one thread's own, or (thread < 0) all threads' together.
  Activations activations(const Linear& op, int thread) const;
  float* normed(int thread) const;             // (inputs)
  float* queries() const;                      // as query_offset says
  float* parts() const;                        // states of all parts of a split attention
  float* states(int thread, int which) const;  // states of one tile; which: 0 or 1
  AttentionScratch attention_scratch(int thread) const;

 private:
  struct Sizes {  // bytes, each a multiple of 64
    size_t own_integers = 0, own_floats = 0, shared_integers = 0, shared_floats = 0;
    size_t normed = 0, queries = 0, parts = 0, states = 0, scores = 0, page_scores = 0;
    size_t of_thread() const;
    size_t shared() const;
  };

  void add(const Linear& op);
  void add(const Attention& op, int threads);
  AttentionPlan cut(const Attention& op, int threads);
  const AttentionPlan* find(const Attention& op) const;
  std::byte* shared_memory() const { return memory_.data.get(); }
  std::byte* own_memory(int thread) const;

  std::vector<AttentionPlan> plans_;
  std::vector<TileWork> tiles_;
  Sizes sizes_;  // the largest seen so far
  Buffer memory_;
};

}  // namespace coppice::cpu
