// Sizes the scratch memory of a step and cuts attention into pieces for the threads.
#include "kernels/cpu/step_plan.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

/// Fewer (tile, KV head) pairs than this a thread, and ranges are shared out as well.
constexpr int kPairsPerThread = 4;
/// Fewer rows than this a thread, and a KV head that they share is cut by ranges if it has several.
constexpr int kFewestRows = 2;

size_t in_lines(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void raise(size_t& size, size_t bytes) {
  size = std::max(size, in_lines(bytes));
}

int group_of(const Attention& op) {
  return op.heads / op.kv.kv_heads;
}

}  // namespace

size_t StepPlan::Sizes::of_thread() const {
  return own_integers + own_floats + normed + 2 * states + scores + page_scores;
}
size_t StepPlan::Sizes::shared() const {
  return shared_integers + shared_floats + queries + parts;
}

void StepPlan::prepare(std::span<const Op> ops, int threads) {
  plans_.clear();
  tiles_.clear();
  for (const Op& op : ops) {
    if (const auto* linear = std::get_if<Linear>(&op)) add(*linear);
    if (const auto* attend = std::get_if<Attention>(&op)) add(*attend, threads);
  }
  const size_t needed = sizes_.shared() + threads * sizes_.of_thread();
  if (needed > memory_.bytes) memory_ = allocate_host(needed);
}

void StepPlan::add(const Linear& op) {
  COPPICE_CHECK(op.weight != nullptr && op.rows >= 0);
  const Panels& panels = static_cast<const PackedWeight*>(op.weight)->panels();
  raise(sizes_.normed, sizeof(float) * panels.inputs);
  const bool own = op.rows <= kRowsEachThread;
  if (panels.reads_integers) {
    raise(own ? sizes_.own_integers : sizes_.shared_integers,
          integer_bytes(op.rows, panels.inputs));
  }
  if (panels.reads_floats) {
    raise(own ? sizes_.own_floats : sizes_.shared_floats, float_bytes(op.rows, panels.inputs));
  }
}

void StepPlan::add(const Attention& op, int threads) {
  const int head_dim = op.kv.head_dim;
  COPPICE_CHECK(op.kv.kv_heads >= 1 && op.heads % op.kv.kv_heads == 0);
  COPPICE_CHECK(head_dim >= 2 && head_dim % 2 == 0 && head_dim <= kLargestHeadDim);
  const int tile_rows = rows_per_tile(op);
  const size_t state_bytes = sizeof(float) * attention_state_floats(head_dim);
  raise(sizes_.queries, sizeof(float) * op.rows * op.heads * head_dim);
  raise(sizes_.states, state_bytes * tile_rows * group_of(op));
  raise(sizes_.scores, sizeof(float) * kRangePositions * tile_rows * group_of(op));
  raise(sizes_.page_scores, sizeof(float) * kPageSlots * tile_rows * group_of(op));
  const AttentionPlan* plan = find(op);
  if (plan == nullptr) plan = &plans_.emplace_back(cut(op, threads));
  if (plan->split) raise(sizes_.parts, state_bytes * plan->part_queries * op.kv.kv_heads);
}

AttentionPlan StepPlan::cut(const Attention& op, int threads) {
  AttentionPlan plan{.row = op.row,
                     .rows = op.rows,
                     .window = op.window,
                     .kv_heads = op.kv.kv_heads,
                     .group = group_of(op)};
  const auto end_of_tile = [&](int first, int most) {
    int end = first + 1;
    while (end < op.rows && end - first < most &&
           op.row[end].page_table == op.row[first].page_table) {
      ++end;
    }
    return end;
  };
  const auto work_of = [&](RowTile rows) { return TileWork{rows, ranges_of(op, rows), 0}; };
  int tile_rows = rows_per_tile(op);
  if (op.rows > 0 && end_of_tile(0, tile_rows) == op.rows) {
    plan.whole = work_of({0, op.rows});
    // Into as many tiles are the remaining heads cut as give every thread the same number of them.
    const int tiles = threads / std::gcd(op.kv.kv_heads, threads);
    const bool one_range = plan.whole.ranges.first == plan.whole.ranges.last;
    if (op.rows >= tiles * kFewestRows) {
      plan.whole_heads = op.kv.kv_heads / threads * threads;
      tile_rows = (op.rows + tiles - 1) / tiles;
    } else if (tiles == 1 || one_range) {
      plan.whole_heads = op.kv.kv_heads;
    }
  }
  plan.first_tile = tiles_.size();
  for (int first = 0; first < op.rows;) {
    const int end = end_of_tile(first, tile_rows);
    TileWork& tile = tiles_.emplace_back(work_of({first, end - first}));
    tile.first_part = plan.part_queries * op.kv.kv_heads;
    const int count = tile.ranges.last - tile.ranges.first + 1;
    plan.parts += count;
    plan.part_queries += static_cast<size_t>(count) * tile.rows.count * plan.group;
    ++plan.tiles;
    first = end;
  }
  plan.split = plan.whole_heads == 0 && plan.parts > plan.tiles &&
               plan.tiles * op.kv.kv_heads < kPairsPerThread * threads;
  return plan;
}

const AttentionPlan* StepPlan::find(const Attention& op) const {
  const auto same = [&](const AttentionPlan& plan) {
    return plan.row == op.row && plan.rows == op.rows && plan.window == op.window &&
           plan.kv_heads == op.kv.kv_heads && plan.group == group_of(op);
  };
  const auto plan = std::find_if(plans_.begin(), plans_.end(), same);
  return plan == plans_.end() ? nullptr : &*plan;
}

const AttentionPlan& StepPlan::attention(const Attention& op) const {
  return *find(op);
}

std::byte* StepPlan::own_memory(int thread) const {
  return shared_memory() + sizes_.shared() + thread * sizes_.of_thread();
}

Activations StepPlan::activations(const Linear& op, int thread) const {
  const Panels& panels = static_cast<const PackedWeight*>(op.weight)->panels();
  std::byte* integers = thread < 0 ? shared_memory() : own_memory(thread);
  std::byte* floats = integers + (thread < 0 ? sizes_.shared_integers : sizes_.own_integers);
  Activations x{.rows = op.rows, .inputs = panels.inputs};
  if (panels.reads_integers) x.integers = reinterpret_cast<IntegerBlock*>(integers);
  if (panels.reads_floats) x.floats = reinterpret_cast<FloatBlock*>(floats);
  return x;
}

float* StepPlan::queries() const {
  return reinterpret_cast<float*>(shared_memory() + sizes_.shared_integers + sizes_.shared_floats);
}
float* StepPlan::parts() const {
  return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(queries()) + sizes_.queries);
}

float* StepPlan::normed(int thread) const {
  return reinterpret_cast<float*>(own_memory(thread) + sizes_.own_integers + sizes_.own_floats);
}
float* StepPlan::states(int thread, int which) const {
  return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(normed(thread)) + sizes_.normed +
                                  which * sizes_.states);
}
AttentionScratch StepPlan::attention_scratch(int thread) const {
  std::byte* scores = reinterpret_cast<std::byte*>(states(thread, 2));
  return {.scores = reinterpret_cast<float*>(scores),
          .page_scores = reinterpret_cast<float*>(scores + sizes_.scores)};
}

}  // namespace coppice::cpu
