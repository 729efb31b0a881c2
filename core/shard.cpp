// See shard.h.
#include "core/shard.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "kernels/base/error.h"

namespace coppice {
namespace {

/// Values that stand together in the matrices that are shared by columns.
int block_of(const ModelSource& whole) {
  int block = 1;
  for (const LayerTensors& layer : whole.layers) {
    for (const TensorView* view : {&layer.attention_output, &layer.down}) {
      block = std::max(block, traits(view->type).block_values);
    }
  }
  return block;
}

bool can_share(const ModelSource& whole, int ranks) {
  const ModelConfig& config = whole.config;
  const auto columns = [&](const TensorView& view) {
    return view.cols % (int64_t{ranks} * traits(view.type).block_values) == 0;
  };
  return config.heads % ranks == 0 && config.kv_heads % ranks == 0 && config.ffn % ranks == 0 &&
         std::all_of(whole.layers.begin(), whole.layers.end(), [&](const LayerTensors& layer) {
           return columns(layer.attention_output) && columns(layer.down);
         });
}

}  // namespace

Shard share_out(const ModelSource& whole, int ranks) {
  COPPICE_CHECK(ranks > 0);
  const ModelConfig& config = whole.config;
  if (ranks > 1 && !can_share(whole, ranks)) {
    std::vector<int> possible = {1};
    for (int n = 2; n <= config.kv_heads; ++n) {
      if (can_share(whole, n)) possible.push_back(n);
    }
    throw Error(
        "{}: {} heads, {} KV heads and {} inner values, in blocks of {}, cannot be shared by {} "
        "devices; give --ranks {}",
        whole.name, config.heads, config.kv_heads, config.ffn, block_of(whole), ranks,
        fmt::join(possible, " or "));
  }
  return {ranks, config.heads / ranks, config.kv_heads / ranks, config.ffn / ranks};
}

}  // namespace coppice
