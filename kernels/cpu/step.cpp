// What each thread does for each op, phase by phase.
#include "kernels/cpu/step.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/products.h"
#include "kernels/shared/judge.h"

namespace coppice::cpu {
namespace {

const Panels& panels_of(const Weight* weight) {
  return static_cast<const PackedWeight*>(weight)->panels();
}

template <class T>
T* row_of(T* base, int row, int stride) {
  return base + static_cast<size_t>(row) * stride;
}

}  // namespace

void Step::run(std::span<const Op> ops) noexcept {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (i > 0) pool_.barrier();
    std::visit([&](const auto& op) { run(op); }, ops[i]);
  }
}

void Step::run(const Embed& op) {
  const Panels& table = panels_of(op.table);
  share(op.rows,
        [&](int r) { embed_row(table, op.token[r], op.scale, row_of(op.out, r, table.inputs)); });
}

void Step::run(const AddNorm& op) {
  share(op.rows, [&](int r) {
    kernels_.norm.add_rms_norm(row_of(op.y, r, op.dim), op.weight, op.eps, op.dim,
                               row_of(op.x, r, op.dim));
  });
}

void Step::run(const Copy& op) {
  share(op.rows, [&](int r) {
    std::memcpy(row_of(op.out, r, op.out_stride), row_of(op.x, r, op.x_stride),
                sizeof(float) * op.dim);
  });
}

void Step::run(const MoveKv& op) {
  share(op.kv.kv_heads, [&](int kv_head) { move_kv(op, kv_head); });
}

void Step::run(const TopK& op) {
  share(op.rows, [&](int r) {
    kernels_.vocabulary.top_k(row_of(op.x, r, op.x_stride), op.cols, op.k,
                              row_of(op.index, r, op.k), row_of(op.value, r, op.k));
  });
}

void Step::run(const Judge& op) {
  share(1, [&](int) { judge(op); });
}

void Step::run(const AllReduce& op) {
  if (op.x == nullptr) return;
  share(op.rows, [&](int r) {
    float* x = row_of(op.x, r, op.dim);
    const float* y = row_of(op.y, r, op.dim);
    for (int i = 0; i < op.dim; ++i) x[i] += y[i];
  });
}

void Step::quantise(const Linear& op, int row, int first_block, int last_block,
                    const Activations& to) {
  const float* x = row_of(op.x, op.gather != nullptr ? op.gather[row] : row, op.x_stride);
  if (op.norm != nullptr) {
    float* normed = plan_.normed(thread_);
    kernels_.norm.rms_norm(x, op.norm, op.norm_eps, to.inputs, normed);
    x = normed;
  }
  kernels_.products.quantise(x, row, first_block, last_block, to);
}

void Step::run(const Linear& op) {
  const bool own = op.rows <= kRowsEachThread;
  const Activations x = plan_.activations(op, own ? thread_ : -1);
  const int blocks = block_count(x.inputs);
  if (own) {
    for (int r = 0; r < op.rows; ++r) quantise(op, r, 0, blocks, x);
  } else if (row_groups(op.rows) < 2 * pool_.size()) {
    // Too few groups to share out, and the rows of one are interleaved: threads that write the same
    // lines would wait for each other. So each takes some blocks of all rows.
    const int first = blocks * thread_ / pool_.size(), last = blocks * (thread_ + 1) / pool_.size();
    for (int r = 0; r < op.rows; ++r) quantise(op, r, first, last, x);
    pool_.barrier();
  } else {
    share(row_groups(op.rows), [&](int group) {
      const int end = std::min((group + 1) * kRowGroup, op.rows);
      for (int r = group * kRowGroup; r < end; ++r) quantise(op, r, 0, blocks, x);
    });
    pool_.barrier();
  }
  if (op.rows > 0) multiply(op, x);
}

void Step::multiply(const Linear& op, const Activations& x) {
  const Panels& panels = panels_of(op.weight);
  const Epilogue epilogue{op.bias, op.activation, op.accumulate};
  const auto run_panels = [&](int first, int last) {
    if (first >= last) return;
    kernels_.products.multiply(panels, x, first, last, epilogue, op.y, op.y_stride);
  };
  // Most panels in one fixed run a thread, read as one stream; the rest goes to who is free first.
  const int threads = pool_.size();
  const int fixed = threads == 1 ? panels.count : panels.count * 7 / 8 / threads;
  run_panels(thread_ * fixed, (thread_ + 1) * fixed);
  const int rest = panels.count - threads * fixed;
  const int chunk = std::max(1, rest / (threads * 2));
  share((rest + chunk - 1) / chunk, [&](int i) {
    const int first = threads * fixed + i * chunk;
    run_panels(first, std::min(first + chunk, panels.count));
  });
}

void Step::run(const Attention& op) {
  const AttentionPlan& plan = plan_.attention(op);
  const int cut_heads = op.kv.kv_heads - plan.whole_heads;
  const auto each_row = [&](int run, const auto& body) {
    const int end = std::min((run + 1) * kPageSlots, op.rows);
    for (int r = run * kPageSlots; r < end; ++r) body(r);
  };
  const auto store = [&](int run, int kv_head) {
    each_row(run, [&](int r) { kernels_.attention.store_kv(op, r, kv_head); });
  };
  const auto prepare = [&](int run, int kv_head) {
    each_row(run,
             [&](int r) { kernels_.attention.prepare_queries(op, r, kv_head, plan_.queries()); });
  };
  // Rows whose K stands in the same lines of memory go to one thread.
  const int runs = (op.rows + kPageSlots - 1) / kPageSlots;
  const int pairs = runs * cut_heads;
  share(2 * pairs + plan.whole_heads, [&](int i) {
    if (i < pairs) return store(i / cut_heads, plan.whole_heads + i % cut_heads);
    if (i < 2 * pairs) return prepare(i / cut_heads - runs, plan.whole_heads + i % cut_heads);
    // No other thread touches this KV head: its writes come before its reads without a barrier.
    const int kv_head = i - 2 * pairs;
    for (int run = 0; run < runs; ++run) {
      store(run, kv_head);
      prepare(run, kv_head);
    }
    attend_tile(op, plan.whole, kv_head);
  });
  if (cut_heads == 0) return;
  pool_.barrier();
  if (plan.split) return attend_split(op, plan);
  const auto tiles = plan_.tiles(plan);
  share(plan.tiles * cut_heads, [&](int i) {
    // Last tiles first: they have the most keys, and the smallest piece should come last.
    attend_tile(op, tiles[plan.tiles - 1 - i / cut_heads], plan.whole_heads + i % cut_heads);
  });
}

void Step::attend_tile(const Attention& op, const TileWork& tile, int kv_head) {
  const AttentionScratch scratch = plan_.attention_scratch(thread_);
  float* total = plan_.states(thread_, 0);
  float* part = plan_.states(thread_, 1);
  const int queries = tile.rows.count * (op.heads / op.kv.kv_heads);
  for (int range = tile.ranges.first; range <= tile.ranges.last; ++range) {
    const bool first = range == tile.ranges.first;
    kernels_.attention.attend(op, tile.rows, kv_head, range, plan_.queries(), scratch,
                              first ? total : part);
    if (!first) kernels_.attention.merge(queries, op.kv.head_dim, part, total);
  }
  kernels_.attention.finish(op, tile.rows, kv_head, total);
}

void Step::attend_split(const Attention& op, const AttentionPlan& plan) {
  const auto tiles = plan_.tiles(plan);
  const int kv_heads = op.kv.kv_heads;
  const AttentionScratch scratch = plan_.attention_scratch(thread_);
  const auto part_of = [&](const TileWork& tile, int range, int kv_head) {
    const size_t queries = static_cast<size_t>(tile.rows.count) * plan.group;
    const size_t part = static_cast<size_t>(range - tile.ranges.first) * kv_heads + kv_head;
    return plan_.parts() +
           (tile.first_part + part * queries) * attention_state_floats(op.kv.head_dim);
  };
  share_in_runs(plan.parts * kv_heads, [&](int i) {
    const int kv_head = i / plan.parts;
    int range = i % plan.parts;  // counted over the tiles, one after the other
    const TileWork* tile = tiles.data();
    for (; range > tile->ranges.last - tile->ranges.first; ++tile) {
      range -= tile->ranges.last - tile->ranges.first + 1;
    }
    range += tile->ranges.first;
    kernels_.attention.attend(op, tile->rows, kv_head, range, plan_.queries(), scratch,
                              part_of(*tile, range, kv_head));
  });
  pool_.barrier();
  share(plan.tiles * kv_heads, [&](int i) {
    const TileWork& tile = tiles[i / kv_heads];
    const int kv_head = i % kv_heads;
    const int queries = tile.rows.count * plan.group;
    float* total = part_of(tile, tile.ranges.first, kv_head);
    for (int range = tile.ranges.first + 1; range <= tile.ranges.last; ++range) {
      kernels_.attention.merge(queries, op.kv.head_dim, part_of(tile, range, kv_head), total);
    }
    kernels_.attention.finish(op, tile.rows, kv_head, total);
  });
}

}  // namespace coppice::cpu
