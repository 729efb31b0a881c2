// Sizes the scratch memory of a step and cuts attention into pieces for the threads.
#include "kernels/cpu/step_plan.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cpu/products.h"

namespace coppice::cpu {
namespace {

/// Fewer (tile, KV head) pairs than this a thread, and ranges are shared out as well.
constexpr int kPairsPerThread = 4;
/// Rows from which two tiles take less time than the barrier that they need.
constexpr int kFewestHalved = 4;

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
  return own_integers + own_floats + normed + 2 * states + keys + values + scores + gathered;
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
  raise(sizes_.keys, sizeof(float) * head_dim * kPageSlots);
  raise(sizes_.values, sizeof(float) * kPageSlots * ((head_dim + 15) / 16 * 16));
  raise(sizes_.scores, sizeof(float) * kRangePositions * tile_rows * group_of(op));
  raise(sizes_.gathered, sizeof(uint16_t) * head_dim * kPageSlots);
  const AttentionPlan* plan = find(op);
  if (plan == nullptr) plan = &plans_.emplace_back(cut(op, threads));
  if (plan->split) raise(sizes_.parts, state_bytes * plan->part_queries * op.kv.kv_heads);
}

AttentionPlan StepPlan::cut(const Attention& op, int threads) {
  int tile_rows = rows_per_tile(op);
  // One tile a KV head would leave threads idle where they are not as many as the heads.
  if (op.rows >= kFewestHalved && op.rows <= tile_rows && op.kv.kv_heads % threads != 0) {
    tile_rows = (op.rows + 1) / 2;
  }
  AttentionPlan plan{.row = op.row,
                     .rows = op.rows,
                     .window = op.window,
                     .kv_heads = op.kv.kv_heads,
                     .group = group_of(op)};
  plan.first_tile = tiles_.size();
  for (int first = 0; first < op.rows;) {
    RowTile tile{first, 1};
    while (first + tile.count < op.rows && tile.count < tile_rows &&
           op.row[first + tile.count].page_table == op.row[first].page_table) {
      ++tile.count;
    }
    const RangeSpan ranges = ranges_of(op, tile);
    const int count = ranges.last - ranges.first + 1;
    tiles_.push_back({tile, ranges, plan.part_queries * op.kv.kv_heads});
    plan.parts += count;
    plan.part_queries += static_cast<size_t>(count) * tile.count * plan.group;
    ++plan.tiles;
    first += tile.count;
  }
  plan.single = plan.tiles == 1 && plan.parts == 1;
  plan.split = plan.parts > plan.tiles && plan.tiles * op.kv.kv_heads < kPairsPerThread * threads;
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
  std::byte* keys = reinterpret_cast<std::byte*>(states(thread, 2));
  std::byte* values = keys + sizes_.keys;
  std::byte* scores = values + sizes_.values;
  return {.keys = reinterpret_cast<float*>(keys),
          .values = reinterpret_cast<float*>(values),
          .scores = reinterpret_cast<float*>(scores),
          .gathered = reinterpret_cast<uint16_t*>(scores + sizes_.scores)};
}

}  // namespace coppice::cpu
