// Every field of every op, visited once: `in`, `out` and `in_out` for memory that an op reads or
// writes (by reference, so that a visitor may put another address there, and with a function that
// counts the values), `value` for all else. Counting reads the op's tables: it is for ops whose
// tables stand in host memory.
//
//   visit_fields(op, visitor);
#pragma once

#include <algorithm>
#include <variant>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// Values from the first of `rows` rows to the end of the last.
inline size_t strided(int rows, int stride, int width) {
  return rows > 0 ? static_cast<size_t>(rows - 1) * stride + width : 0;
}

/// Entries of the tables that a batch of rows names, and the last page among them.
struct TableExtents {
  size_t tail_slots = 0, pages = 0;
  int most_keys = 0, last_page = -1;
};
inline TableExtents extents_of(const Attention& op) {
  TableExtents out;
  for (int r = 0; r < op.rows; ++r) {
    const AttentionRow& row = op.row[r];
    const int listed = std::max(row.position + 1 - row.prefix, 0);
    if (listed > 0) out.tail_slots = std::max(out.tail_slots, size_t(row.tail) + listed);
    int last_slot = std::max(row.slot, std::min(row.prefix, row.position + 1) - 1);
    for (int k = 0; k < listed; ++k) last_slot = std::max(last_slot, op.tail_slots[row.tail + k]);
    const size_t end = static_cast<size_t>(row.page_table) + last_slot / kPageSlots + 1;
    out.pages = std::max(out.pages, end);
    out.most_keys = std::max(out.most_keys, row.position + 1);
  }
  for (size_t p = 0; p < out.pages; ++p) out.last_page = std::max(out.last_page, op.pages[p]);
  return out;
}

inline size_t kv_extent(const KvLayer& kv, int last_page) {
  return last_page < 0 ? 0 : last_page * kv.page_stride + kv_page_bytes(kv.kv_heads, kv.head_dim);
}

template <class LastPage, class V>
void visit_fields(KvLayer& kv, const LastPage& last_page, V& v) {
  v.in_out(kv.base, [&] { return kv_extent(kv, last_page()); });
  v.value(kv.page_stride);
  v.value(kv.kv_heads);
  v.value(kv.head_dim);
}

template <class V>
void visit_fields(Embed& op, V& v) {
  v.value(op.table);
  v.in(op.token, [&] { return static_cast<size_t>(op.rows); });
  v.value(op.rows);
  v.value(op.scale);
  v.out(op.out, [&] { return static_cast<size_t>(op.rows) * op.table->inputs; });
}

template <class V>
void visit_fields(Linear& op, V& v) {
  const int inputs = op.weight->inputs, outputs = op.weight->outputs;
  const auto source_rows = [&] {
    if (op.gather == nullptr || op.rows == 0) return op.rows;
    return *std::max_element(op.gather, op.gather + op.rows) + 1;
  };
  v.value(op.weight);
  v.in(op.x, [&] { return strided(source_rows(), op.x_stride, inputs); });
  v.value(op.x_stride);
  v.in(op.gather, [&] { return static_cast<size_t>(op.rows); });
  v.value(op.rows);
  v.in(op.norm, [&] { return static_cast<size_t>(inputs); });
  v.value(op.norm_eps);
  v.in(op.bias, [&] { return static_cast<size_t>(outputs); });
  v.value(op.activation);
  v.value(op.accumulate);
  v.in_out(op.y, [&] { return strided(op.rows, op.y_stride, outputs); });
  v.value(op.y_stride);
}

template <class V>
void visit_fields(AddNorm& op, V& v) {
  const size_t values = static_cast<size_t>(op.rows) * op.dim;
  v.in(op.y, [&] { return values; });
  v.in(op.weight, [&] { return static_cast<size_t>(op.dim); });
  v.value(op.eps);
  v.value(op.rows);
  v.value(op.dim);
  v.in_out(op.x, [&] { return values; });
}

template <class V>
void visit_fields(Copy& op, V& v) {
  v.in(op.x, [&] { return strided(op.rows, op.x_stride, op.dim); });
  v.value(op.x_stride);
  v.value(op.rows);
  v.value(op.dim);
  v.in_out(op.out, [&] { return strided(op.rows, op.out_stride, op.dim); });
  v.value(op.out_stride);
}

template <class V>
void visit_fields(Attention& op, V& v) {
  const auto tables = [&] { return extents_of(op); };
  const size_t dim = static_cast<size_t>(op.kv.head_dim);
  v.in(op.qkv, [&] { return op.rows * (op.heads + size_t{2} * op.kv.kv_heads) * dim; });
  v.value(op.rows);
  v.value(op.heads);
  v.in(op.q_norm, [&] { return dim; });
  v.in(op.k_norm, [&] { return dim; });
  v.value(op.norm_eps);
  v.in(op.rotary, [&] { return tables().most_keys * dim; });
  v.value(op.style);
  v.value(op.scale);
  v.value(op.window);
  visit_fields(
      op.kv, [&] { return tables().last_page; }, v);
  v.in(op.row, [&] { return static_cast<size_t>(op.rows); });
  v.in(op.tail_slots, [&] { return tables().tail_slots; });
  v.in(op.pages, [&] { return tables().pages; });
  v.out(op.out, [&] { return static_cast<size_t>(op.rows) * op.heads * dim; });
}

template <class V>
void visit_fields(MoveKv& op, V& v) {
  const auto last_page = [&] {
    int last = -kPageSlots;
    for (int i = 0; i < op.count; ++i) last = std::max({last, op.from[i], op.to[i]});
    return last / kPageSlots;
  };
  visit_fields(op.kv, last_page, v);
  v.value(op.count);
  v.in(op.from, [&] { return static_cast<size_t>(op.count); });
  v.in(op.to, [&] { return static_cast<size_t>(op.count); });
}

template <class V>
void visit_fields(TopK& op, V& v) {
  const size_t found = static_cast<size_t>(op.rows) * op.k;
  v.in(op.x, [&] { return strided(op.rows, op.x_stride, op.cols); });
  v.value(op.x_stride);
  v.value(op.rows);
  v.value(op.cols);
  v.value(op.k);
  v.out(op.index, [&] { return found; });
  v.out(op.value, [&] { return found; });
}

// What changes from step to step is read from the op's copy on the device, and is not visited.
template <class V>
void visit_fields(Judge& op, V& v) {
  const auto count = [](int values) { return [values] { return static_cast<size_t>(values); }; };
  const auto last_row = [&] {
    int last = 0;
    for (int n = 0; n < op.nodes; ++n) last = std::max(last, op.node[n].logit_row);
    return last;
  };
  v.value(op.rule);
  v.in(op.logits, [&] { return strided(last_row() + 1, op.logits_stride, op.vocabulary); });
  v.value(op.logits_stride);
  v.value(op.vocabulary);
  v.in(op.node, count(op.nodes));
  v.value(op.nodes);
  v.in(op.proposal, count(op.proposals));
  v.in(op.q, count(op.q_values));
  v.in(op.q_ids, count(op.q_tokens));
  v.in(op.history, count(op.history_count));
  v.in(op.bias, count(op.biases));
  v.in(op.masked, count(op.masks));
  v.out(op.verdict, count(op.nodes + 1));
}

template <class V>
void visit_fields(AllReduce& op, V& v) {
  const auto values = [&] { return static_cast<size_t>(op.rows) * op.dim; };
  v.in_out(op.y, values);
  v.value(op.rows);
  v.value(op.dim);
  v.in_out(op.x, values);
}

template <class V>
void visit_fields(Op& op, V& v) {
  v.value(op.index());
  std::visit([&](auto& each) { visit_fields(each, v); }, op);
}

/// A visitor that asks what memory an op touches, and no more: it has memory(pointer, count,
/// written).
template <class Self>
struct MemoryVisitor {
  template <class T, class Count>
  void in(const T*& pointer, const Count& count) {
    self().memory(pointer, count, false);
  }
  template <class T, class Count>
  void out(T*& pointer, const Count& count) {
    self().memory(pointer, count, true);
  }
  template <class T, class Count>
  void in_out(T*& pointer, const Count& count) {
    self().memory(pointer, count, true);
  }
  template <class T>
  void value(const T&) {}

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
