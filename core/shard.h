// One rank's share of a model under tensor parallelism: its heads of Q, K and V and its inner
// values of the feed-forward block, by rows of those matrices and by columns of the ones behind
// them. Norms, embedding and output layer are whole on every rank. Source: Shoeybi et al. 2019
// (Megatron-LM), section 3.
//
//   Shard shard(read_model(file), 0, 2);
//   Model model(shard.source(), *backend);   // its forward sums over ranks by the op AllReduce
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "core/model_source.h"

namespace coppice {

class Shard {
 public:
  /// Views into what `whole` views, but for columns, which are copied. Throws Error where heads, KV
  /// heads, inner values or blocks of a quantised type cannot be shared out evenly.
  Shard(const ModelSource& whole, int rank, int ranks);
  Shard(const Shard&) = delete;
  const ModelSource& source() const { return source_; }

 private:
  TensorView rows(const TensorView& view) const;
  TensorView columns(const TensorView& view);
  TensorView bias(const TensorView& view);

  int rank_, ranks_;
  ModelSource source_;
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace coppice
