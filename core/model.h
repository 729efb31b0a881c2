// A transformer packed for one backend, and its forward pass over a ragged batch: rows of several
// sequences at once, each a trunk of certain tokens and the tree that hangs under the last of them.
//
//   Model model(read_model(file), *backend);
//   Workspace workspace(model, *backend, {.rows = 512, .logit_rows = 64});
//   ForwardOutput out = model.forward(batch, cache, workspace);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kv_cache.h"
#include "core/model_source.h"
#include "core/row_placement.h"
#include "core/shard.h"

namespace coppice {

struct ForwardBatch {
  std::span<const int32_t> token;
  std::span<const int32_t> parent;  // core/row_placement.h
  std::span<const SequenceRows> sequences;
  std::span<const int32_t> logit_rows;  // batch rows whose logits are wanted
  std::span<const int> tap_layers;      // hidden state after that many layers (0: the embedding)
  std::span<const int> layers;          // run these alone, ascending; empty: all
  int top_k = 0;                        // most likely tokens of every logit row; 0: none
  std::span<const Judge> judges = {};   // run at the end; the model puts its logits in
};

/// Views into the workspace, valid until its next use.
struct ForwardOutput {
  int vocabulary = 0;
  int dim = 0;
  int rows = 0;
  int top_k = 0;
  std::span<const float> logits;      // (logit_rows, vocabulary)
  std::span<const float> taps;        // (tap_layers, rows, dim)
  std::span<const int32_t> top_ids;   // (logit_rows, top_k), most likely first
  std::span<const float> top_logits;  // (logit_rows, top_k)

  const float* logits_of(int logit_row) const {
    return logits.data() + static_cast<size_t>(logit_row) * vocabulary;
  }
  const float* tap(int tap_index, int row) const {
    return taps.data() + (static_cast<size_t>(tap_index) * rows + row) * dim;
  }
};

struct WorkspaceSize {
  int rows = 0;        // most rows in one forward
  int logit_rows = 0;  // most logit rows
  int taps = 0;        // most tap layers
  int top_k = 0;
};

class Model;

/// (positions, head_dim/2, 2): cosine and sine of position x base^(-2i/head_dim), the frequency
/// divided by Llama 3's factors where given (RoFormer 2021, eq. 15).
std::vector<float> rotary_table(float base, int head_dim, int positions,
                                std::span<const float> factors);

/// Scratch memory of a forward pass. Allocated once; a forward allocates nothing.
class Workspace {
 public:
  Workspace(const Model& model, Backend& backend, WorkspaceSize size);
  const WorkspaceSize& size() const { return size_; }

 private:
  friend class Model;
  WorkspaceSize size_;
  Buffer x_, qkv_, attention_, ffn_, block_, logits_, taps_, top_logits_;
  Buffer top_ids_;
  PlacedRows placed_;
  std::vector<Op> ops_;
};

/// Which devices of a backend that has several hold a model: drafts are too small to share.
enum class Devices { all, first };

class Model {
 public:
  /// Packs the tensors; the source may be closed afterwards. `context` bounds the positions (0:
  /// what the model was trained for). Throws Error where the devices cannot share it.
  Model(const ModelSource& source, Backend& backend, int context = 0,
        Devices devices = Devices::all);

  const ModelConfig& config() const { return config_; }
  /// Of its heads and inner values, what one device has.
  const Shard& shard() const { return shard_; }
  int layers() const { return static_cast<int>(layers_.size()); }
  /// Positions a sequence may have.
  int context() const { return context_; }
  size_t weight_bytes() const;
  std::vector<KvShape> kv_shapes() const;
  /// What heads that read this model's hidden states share with it.
  const Weight& embedding() const { return *embedding_; }  // (vocabulary, dim)
  const std::shared_ptr<const Weight>& shared_embedding() const { return embedding_; }
  const Weight& output() const { return separate_output_ ? *separate_output_ : *embedding_; }
  std::span<const float> output_norm() const {
    return {output_norm_.as<float>(), static_cast<size_t>(config_.dim)};
  }
  /// Of the norms, which no quantisation changes: equal for every file of one model.
  uint64_t fingerprint() const { return fingerprint_; }

  /// Writes K and V of every row into the layers `kv_first`.. of `cache`. Throws nothing; a batch
  /// that breaks its contract aborts.
  ForwardOutput forward(const ForwardBatch& batch, KVCache& cache, Workspace& workspace,
                        int kv_first = 0) const;

 private:
  struct Layer {
    std::unique_ptr<Weight> qkv, output, gate_up, down;
    Buffer attention_norm, ffn_norm, post_attention_norm, post_ffn_norm;  // empty: there is none
    Buffer q_norm, k_norm, qkv_bias;
    LayerKind kind;
  };
  struct RowSpan {
    int first = 0, count = 0;
  };
  static RowSpan wanted_rows(const ForwardBatch& batch);
  void add_layer_ops(const Layer& layer, const KvLayer& kv, int rows, RowSpan read,
                     Workspace& workspace) const;

  ModelConfig config_;
  Shard shard_;
  Backend* backend_;
  int context_ = 0;
  std::shared_ptr<const Weight> embedding_;
  std::unique_ptr<Weight> separate_output_;  // null: tied to the embedding
  Buffer output_norm_;
  uint64_t fingerprint_ = 0;
  std::vector<Buffer> rotary_;  // one table a base: (context, head_dim/2, 2)
  std::vector<Layer> layers_;
};

}  // namespace coppice
