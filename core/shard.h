// How devices share a model (tensor parallelism): each has its heads of Q, K and V and its inner
// values of the feed-forward block, by rows of those matrices and by columns of the ones behind
// them. Norms and embedding are whole on each. Source: Shoeybi et al. 2019 (Megatron-LM),
// section 3.
//
//   const Shard own = share_out(source, backend.ranks());
#pragma once

#include "core/model_source.h"

namespace coppice {

/// What one device has.
struct Shard {
  int ranks = 1;  // devices that there are
  int heads = 0;
  int kv_heads = 0;
  int ffn = 0;
};

/// Throws Error where heads, KV heads, inner values or blocks of a quantised type cannot be shared
/// out evenly; it names how many devices can.
Shard share_out(const ModelSource& whole, int ranks);

}  // namespace coppice
