// See shard.h.
#include "core/shard.h"

#include <cstring>

#include "kernels/base/error.h"

namespace coppice {

Shard::Shard(const ModelSource& whole, int rank, int ranks)
    : rank_(rank), ranks_(ranks), source_(whole) {
  COPPICE_CHECK(ranks > 0 && rank >= 0 && rank < ranks);
  ModelConfig& config = source_.config;
  if (config.heads % ranks != 0 || config.kv_heads % ranks != 0 || config.ffn % ranks != 0) {
    throw Error("{}: {} heads, {} KV heads and {} inner values cannot be shared by {} devices",
                whole.name, config.heads, config.kv_heads, config.ffn, ranks);
  }
  config.heads /= ranks;
  config.kv_heads /= ranks;
  config.ffn /= ranks;
  config.ranks = ranks;
  for (LayerTensors& layer : source_.layers) {
    for (TensorView* view : {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up}) {
      *view = rows(*view);
    }
    for (TensorView* view : {&layer.attention_output, &layer.down}) *view = columns(*view);
    for (TensorView* view : {&layer.q_bias, &layer.k_bias, &layer.v_bias}) *view = bias(*view);
  }
}

TensorView Shard::rows(const TensorView& view) const {
  const int64_t own = view.rows / ranks_;
  return {view.type, view.row(rank_ * own), own, view.cols};
}

TensorView Shard::columns(const TensorView& view) {
  const int64_t own = view.cols / ranks_;
  if (view.cols % ranks_ != 0 || own % traits(view.type).block_values != 0) {
    throw Error("{}: {} columns of {} blocks cannot be shared by {} devices", source_.name,
                view.cols, traits(view.type).name, ranks_);
  }
  TensorView out{view.type, nullptr, view.rows, own};
  std::vector<std::byte>& copy = memory_.emplace_back(out.bytes());
  for (int64_t r = 0; r < view.rows; ++r) {
    std::memcpy(copy.data() + static_cast<size_t>(r) * out.row_bytes(),
                view.row(r) + static_cast<size_t>(rank_) * out.row_bytes(), out.row_bytes());
  }
  out.data = copy.data();
  return out;
}

TensorView Shard::bias(const TensorView& view) {
  return view.data == nullptr ? view : columns(view);
}

}  // namespace coppice
