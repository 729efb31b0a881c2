// A decoder layer that reads the target's hidden states and the tokens that followed them, and says
// what comes next: the network of EAGLE (Li 2024, section 3.1: fc([e, f]), then a layer without its
// first norm) and of EAGLE-3 (Li 2025, section 3.1: low, middle and high states fused, each half of
// the attention's input with a norm of its own). Its K and V are a layer of the target's cache.
//
//   FeatureLayer layer(head, target, backend, {.rows = 256, .logit_rows = 10, .context = 1024});
//   FeatureOutput out = layer.forward(batch, cache, first_layer);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/row_placement.h"
#include "decoding/draft_head.h"

namespace coppice {

struct FeatureBatch {
  std::span<const int32_t> token, parent;  // core/row_placement.h
  std::span<const SequenceRows> sequences;
  std::span<const int32_t> logit_rows;
  /// The state before each token: the target's, (rows, taps, dim), or when `drafted` what this
  /// layer gave for the row before, (rows, dim).
  const float* features = nullptr;
  bool drafted = false;
};

/// Views into the layer, valid until its next use.
struct FeatureOutput {
  std::span<const float> hidden;  // (rows, dim)
  std::span<const float> logits;  // (logit rows, draft vocabulary)
};

class FeatureLayer {
 public:
  struct Size {
    int rows = 0;        // most rows in one forward
    int logit_rows = 0;  // most of them with logits
    int context = 0;     // positions
  };
  /// The head's target was checked. Throws Error for tensors that are missing or of other shapes.
  FeatureLayer(const DraftHead& head, const Model& target, Backend& backend, const Size& size);

  int dim() const { return dim_; }
  int taps() const { return static_cast<int>(fuse_.size()); }
  KvShape kv_shape() const { return {config_.kv_heads, config_.head_dim}; }
  /// Writes K and V of every row into that layer of the cache.
  FeatureOutput forward(const FeatureBatch& batch, const KVCache& cache, int layer);

 private:
  void load_eagle(const DraftHead& head, Backend& backend);
  void load_eagle3(const DraftHead& head, Backend& backend);
  void load_layer(const DraftHead& head, Backend& backend, const std::string& prefix);
  void add_inputs(const FeatureBatch& batch, int rows);

  HeadConfig config_;
  const Model* target_;
  Backend* backend_;
  int dim_;
  Size size_;
  std::unique_ptr<Weight> embedding_;          // null: the target's
  std::vector<std::unique_ptr<Weight>> fuse_;  // (dim, dim) of each tap
  std::unique_ptr<Weight> embed_;              // EAGLE's fc for embeddings; null: EAGLE-3
  std::unique_ptr<Weight> qkv_embed_;          // EAGLE-3: the embeddings' half; else null
  std::unique_ptr<Weight> qkv_, attention_output_, gate_up_, down_;
  std::unique_ptr<Weight> output_;  // null: the target's
  std::vector<float> fuse_bias_;
  std::vector<float> embed_norm_, attention_norm_, ffn_norm_, output_norm_;  // empty: none
  std::vector<float> rotary_;
  Buffer embedded_, x_, qkv_rows_, attention_, ffn_, logits_;
  PlacedRows placed_;
  std::vector<Op> ops_;
};

}  // namespace coppice
