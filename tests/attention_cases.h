// Token trees whose attention is computed in many layouts: committed chains and trees, keys in slot
// order or scattered, in one step or many, beside other sequences. Page memory is filled with NaN,
// so that a slot which no row wrote cannot be read unseen.
//
//   AttentionRig rig(*backend, {.heads = 9, .kv_heads = 3, .head_dim = 64}, 8);
//   const Tree tree = random_tree(60, 12, rig.width(), rng);
//   auto out = rig.tree_rows(tree, Layout{.committed = 60}, rng);   // (nodes, heads head_dim)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "tests/random_tensors.h"

namespace coppice::test {

struct AttentionShape {
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 64;
  RotaryStyle style = RotaryStyle::adjacent;
  bool norms = false;
  int window = 0;
};

/// Node i hangs under parent[i] < i; the first `chain` nodes are a chain from position 0.
struct Tree {
  int chain = 0;
  std::vector<int> parent;
  std::vector<float> qkv;  // (nodes, width)

  int nodes() const { return static_cast<int>(parent.size()); }
  /// The nodes from the first to `node`: its keys in position order.
  std::vector<int> path(int node) const {
    std::vector<int> out;
    for (int at = node; at >= 0; at = parent[at]) out.insert(out.begin(), at);
    return out;
  }
};

inline Tree random_tree(int chain, int branches, int width, Rng& rng) {
  Tree tree{chain, {}, rng.normals(static_cast<size_t>(chain + branches) * width)};
  for (int i = 0; i < chain; ++i) tree.parent.push_back(i - 1);
  for (int i = 0; i < branches; ++i) {  // half of the nodes go deeper, half become siblings
    const int last = chain + i - 1;
    tree.parent.push_back(i == 0 || rng.below(2) == 0 ? last : chain - 1 + rng.below(i + 1));
  }
  return tree;
}

struct Layout {
  int committed = 0;      // nodes of the chain that earlier steps compute, each in slot = position
  int prefix = 0;         // of those, how many the last step reaches by position, not by tail_slots
  int earlier_rows = 32;  // rows of an earlier step
  bool scattered = false;  // the last step's nodes stand in random slots
  int neighbours = 0;      // other sequences in every step, half before and half behind
};

/// One attention op and the memory that it points to.
struct AttentionStep {
  std::vector<float> qkv, out;
  std::vector<AttentionRow> rows;
  std::vector<int32_t> tail_slots, pages;
};

class AttentionRig {
 public:
  AttentionRig(Backend& backend, AttentionShape shape, int sequence_pages, int sequences = 1)
      : backend_(backend), shape_(shape), sequence_pages_(sequence_pages) {
    const size_t page = kv_page_bytes(shape.kv_heads, shape.head_dim);
    memory_ = backend.allocate(page * sequence_pages * sequences);
    poison();
    kv_ = {memory_.data.get(), page, shape.kv_heads, shape.head_dim};
    Rng rng(99);
    page_order_.resize(static_cast<size_t>(sequence_pages * sequences));
    std::iota(page_order_.begin(), page_order_.end(), 0);
    for (size_t i = page_order_.size(); i > 1; --i) {
      std::swap(page_order_[i - 1], page_order_[rng.below(static_cast<int>(i))]);
    }
    for (int position = 0; position < sequence_pages * kPageSlots; ++position) {
      for (int i = 0; i < shape.head_dim / 2; ++i) {
        const double angle = position * std::pow(1e4, -2.0 * i / shape.head_dim);
        rotary_.push_back(static_cast<float>(std::cos(angle)));
        rotary_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    Rng norms(98);  // its own, so that rigs of any number of pages have the same norms
    q_norm_ = norms.normals(static_cast<size_t>(shape.head_dim));
    k_norm_ = norms.normals(static_cast<size_t>(shape.head_dim));
  }

  int width() const { return (shape_.heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  int out_width() const { return shape_.heads * shape_.head_dim; }
  void poison() { std::memset(memory_.data.get(), 0xff, memory_.bytes); }

  /// The op over `step`, whose `out` it makes room for.
  Attention op(AttentionStep& step) const {
    step.out.assign(step.rows.size() * out_width(), 0.0f);
    Attention op;
    op.qkv = step.qkv.data();
    op.rows = static_cast<int>(step.rows.size());
    op.heads = shape_.heads;
    op.q_norm = shape_.norms ? q_norm_.data() : nullptr;
    op.k_norm = shape_.norms ? k_norm_.data() : nullptr;
    op.norm_eps = 1e-6f;
    op.rotary = rotary_.data();
    op.style = shape_.style;
    op.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    op.window = shape_.window;
    op.kv = kv_;
    op.row = step.rows.data();
    op.tail_slots = step.tail_slots.data();
    op.pages = step.pages.data();
    op.out = step.out.data();
    return op;
  }

  /// Adds rows first..end-1 of `tree` to `step` as sequence `sequence`; slot[i] is node i's slot.
  void add_rows(AttentionStep& step, const Tree& tree, int first, int end,
                std::span<const int> slot, int prefix, int sequence) const {
    const auto page_table = static_cast<int32_t>(step.pages.size());
    const auto pages = page_order_.begin() + sequence * sequence_pages_;
    step.pages.insert(step.pages.end(), pages, pages + sequence_pages_);
    for (int node = first; node < end; ++node) {
      const std::vector<int> path = tree.path(node);
      AttentionRow row;
      row.position = static_cast<int>(path.size()) - 1;
      row.slot = slot[node];
      row.prefix = prefix;
      row.tail = static_cast<int32_t>(step.tail_slots.size());
      row.page_table = page_table;
      for (size_t p = prefix; p < path.size(); ++p) step.tail_slots.push_back(slot[path[p]]);
      step.rows.push_back(row);
      const float* qkv = tree.qkv.data() + static_cast<size_t>(node) * width();
      step.qkv.insert(step.qkv.end(), qkv, qkv + width());
    }
  }

  void run(AttentionStep& step) {
    const Op ops[] = {op(step)};
    backend_.run(ops);
  }

  /// Outputs of all nodes, (nodes, out_width), each computed alone: its path goes through the
  /// cache one row a step, in the slots of its positions.
  std::vector<float> rows_alone(const Tree& tree) {
    std::vector<float> out;
    std::vector<int> cached;
    for (int node = 0; node < tree.nodes(); ++node) {
      const std::vector<int> path = tree.path(node);
      size_t same = 0;
      while (same < cached.size() && same < path.size() && cached[same] == path[same]) ++same;
      AttentionStep step;
      for (size_t p = same; p < path.size(); ++p) {
        std::vector<int> slot(static_cast<size_t>(tree.nodes()));
        for (size_t i = 0; i <= p; ++i) slot[path[i]] = static_cast<int>(i);
        step = {};
        add_rows(step, tree, path[p], path[p] + 1, slot, static_cast<int>(p) + 1, 0);
        run(step);
      }
      cached = path;
      out.insert(out.end(), step.out.begin(), step.out.end());
    }
    return out;
  }

  /// The same outputs in the given layout: the chain's first `committed` nodes in earlier steps,
  /// all others in one last step, which stays in last_step().
  std::vector<float> tree_rows(const Tree& tree, const Layout& layout, Rng& rng) {
    poison();
    std::vector<int> slot(static_cast<size_t>(sequence_pages_) * kPageSlots);
    std::iota(slot.begin(), slot.end(), 0);
    if (layout.scattered) {
      for (int i = static_cast<int>(slot.size()) - 1; i > layout.committed; --i) {
        std::swap(slot[i], slot[layout.committed + rng.below(i - layout.committed + 1)]);
      }
    }
    std::vector<float> out;
    for (int first = 0; first < tree.nodes();) {
      const bool last = first >= layout.committed;
      const int end = last ? tree.nodes() : std::min(layout.committed, first + layout.earlier_rows);
      AttentionStep step;
      size_t own = 0;
      for (int s = 0; s <= layout.neighbours; ++s) {
        if (s == layout.neighbours / 2) own = step.rows.size();
        add_rows(step, tree, first, end, slot, last ? layout.prefix : first, s);
        if (s != layout.neighbours / 2) disturb(step, end - first, rng);
      }
      run(step);
      const auto begin = step.out.begin() + static_cast<std::ptrdiff_t>(own) * out_width();
      out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(end - first) * out_width());
      first = end;
      last_step_ = std::move(step);
    }
    return out;
  }

  AttentionStep& last_step() { return last_step_; }

 private:
  /// Gives the last `rows` rows of `step`, a neighbour's, values of their own.
  void disturb(AttentionStep& step, int rows, Rng& rng) const {
    const size_t count = static_cast<size_t>(rows) * width();
    const auto values = rng.normals(count);
    std::copy(values.begin(), values.end(), step.qkv.end() - static_cast<std::ptrdiff_t>(count));
  }

  Backend& backend_;
  AttentionShape shape_;
  int sequence_pages_;
  Buffer memory_;
  KvLayer kv_;
  std::vector<int32_t> page_order_;
  std::vector<float> rotary_, q_norm_, k_norm_;
  AttentionStep last_step_;
};

}  // namespace coppice::test
