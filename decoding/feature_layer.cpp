// See feature_layer.h.
#include "decoding/feature_layer.h"

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/base/error.h"

namespace coppice {
namespace {

std::unique_ptr<Weight> pack_columns(Backend& backend, const TensorView& whole, int64_t first,
                                     int64_t count) {
  return backend.pack(TensorColumns(whole, first, count).view);
}

const float* or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

}  // namespace

FeatureLayer::FeatureLayer(const DraftHead& head, const Model& target, Backend& backend,
                           const Size& size)
    : config_(head.config()),
      target_(&target),
      backend_(&backend),
      dim_(target.config().dim),
      size_(size),
      rotary_(rotary_table(config_.rotary_base, config_.head_dim, size.context, {})) {
  const SafetensorsFile& file = head.file();
  const int vocabulary = target.config().vocabulary;
  if (file.find("embed_tokens.weight") != nullptr) {
    embedding_ = backend.pack(file.matrix("embed_tokens.weight", vocabulary, dim_));
  }
  config_.kind == "eagle" ? load_eagle(head, backend) : load_eagle3(head, backend);
  const int drafted = config_.draft_vocabulary > 0 ? config_.draft_vocabulary : vocabulary;
  if (file.find("lm_head.weight") != nullptr || config_.draft_vocabulary > 0) {
    output_ = backend.pack(file.matrix("lm_head.weight", drafted, dim_));
  }
  const auto floats = [&](int rows, int width) {
    return backend.allocate(static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float));
  };
  const int attention = config_.heads * config_.head_dim;
  embedded_ = floats(size.rows, dim_);
  x_ = floats(size.rows, dim_);
  qkv_rows_ = floats(size.rows, attention + 2 * config_.kv_heads * config_.head_dim);
  attention_ = floats(size.rows, attention);
  ffn_ = floats(size.rows, config_.ffn);
  logits_ = floats(size.logit_rows, drafted);
}

void FeatureLayer::load_eagle(const DraftHead& head, Backend& backend) {
  const SafetensorsFile& file = head.file();
  const TensorView joined = file.matrix("fc.weight", dim_, int64_t{2} * dim_);
  embed_ = pack_columns(backend, joined, 0, dim_);
  fuse_.push_back(pack_columns(backend, joined, dim_, dim_));
  if (file.find("fc.bias") != nullptr) fuse_bias_ = file.vector("fc.bias", dim_);
  load_layer(head, backend, "layers.0.");
}

void FeatureLayer::load_eagle3(const DraftHead& head, Backend& backend) {
  const SafetensorsFile& file = head.file();
  const auto taps = static_cast<int64_t>(config_.taps.size());
  const TensorView fc = file.matrix("fc.weight", dim_, taps * dim_);
  for (int64_t tap = 0; tap < taps; ++tap) {
    fuse_.push_back(pack_columns(backend, fc, tap * dim_, dim_));
  }
  embed_norm_ = file.vector("midlayer.input_layernorm.weight", dim_);
  output_norm_ = file.vector("norm.weight", dim_);
  load_layer(head, backend, "midlayer.");
}

void FeatureLayer::load_layer(const DraftHead& head, Backend& backend, const std::string& prefix) {
  const SafetensorsFile& file = head.file();
  const int64_t q = int64_t{config_.heads} * config_.head_dim;
  const int64_t kv = int64_t{config_.kv_heads} * config_.head_dim;
  const bool joined = !embed_norm_.empty();  // EAGLE-3: embedding and state side by side
  const int64_t inputs = (joined ? 2 : 1) * int64_t{dim_};
  const std::array<TensorView, 3> whole = {
      file.matrix(prefix + "self_attn.q_proj.weight", q, inputs),
      file.matrix(prefix + "self_attn.k_proj.weight", kv, inputs),
      file.matrix(prefix + "self_attn.v_proj.weight", kv, inputs)};
  const auto pack_half = [&](int64_t first) {
    std::vector<TensorColumns> parts;
    std::vector<TensorView> views;
    parts.reserve(whole.size());
    for (const TensorView& view : whole) {
      views.push_back(parts.emplace_back(view, first, dim_).view);
    }
    return backend.pack(views, Stacking::concatenated);
  };
  if (joined) {
    qkv_embed_ = pack_half(0);
    qkv_ = pack_half(dim_);
    attention_norm_ = file.vector(prefix + "hidden_norm.weight", dim_);
  } else {
    qkv_ = backend.pack(whole, Stacking::concatenated);
    const std::string norm = prefix + "input_layernorm.weight";  // EAGLE's only layer has none
    if (file.find(norm) != nullptr) attention_norm_ = file.vector(norm, dim_);
  }
  attention_output_ = backend.pack(file.matrix(prefix + "self_attn.o_proj.weight", dim_, q));
  const std::array<TensorView, 2> gated = {
      file.matrix(prefix + "mlp.gate_proj.weight", config_.ffn, dim_),
      file.matrix(prefix + "mlp.up_proj.weight", config_.ffn, dim_)};
  gate_up_ = backend.pack(gated, Stacking::gated);
  down_ = backend.pack(file.matrix(prefix + "mlp.down_proj.weight", dim_, config_.ffn));
  ffn_norm_ = file.vector(prefix + "post_attention_layernorm.weight", dim_);
}

// Fills x with what the residual stream begins as. EAGLE reads the target's last state behind its
// output norm, as the output layer does, and its own output as it is.
void FeatureLayer::add_inputs(const FeatureBatch& batch, int rows) {
  const ModelConfig& target = target_->config();
  float* x = x_.as<float>();
  ops_.push_back(Embed{embedding_ ? embedding_.get() : &target_->embedding(), batch.token.data(),
                       rows, target.embedding_scale, embedded_.as<float>()});
  if (embed_ != nullptr) {
    ops_.push_back(Linear{.weight = embed_.get(),
                          .x = embedded_.as<float>(),
                          .x_stride = dim_,
                          .rows = rows,
                          .bias = or_null(fuse_bias_),
                          .y = x,
                          .y_stride = dim_});
  } else if (batch.drafted) {
    ops_.push_back(Copy{batch.features, dim_, rows, dim_, x, dim_});
    return;
  }
  const int stride = batch.drafted ? dim_ : taps() * dim_;
  for (int tap = 0; tap < taps(); ++tap) {
    Linear product{.weight = fuse_[static_cast<size_t>(tap)].get(),
                   .x = batch.features + static_cast<size_t>(tap) * dim_,
                   .x_stride = stride,
                   .rows = rows,
                   .accumulate = embed_ != nullptr || tap > 0,
                   .y = x,
                   .y_stride = dim_};
    if (embed_ != nullptr && !batch.drafted) {
      product.norm = target_->output_norm().data();
      product.norm_eps = target.norm_eps;
    }
    ops_.push_back(product);
  }
}

FeatureOutput FeatureLayer::forward(const FeatureBatch& batch, const KVCache& cache, int layer) {
  const int rows = static_cast<int>(batch.token.size());
  const int logit_rows = static_cast<int>(batch.logit_rows.size());
  COPPICE_CHECK(rows > 0 && rows <= size_.rows && logit_rows <= size_.logit_rows);
  place_rows(batch.parent, batch.sequences, placed_);
  for (const AttentionRow& row : placed_.rows) COPPICE_CHECK(row.position < size_.context);
  ops_.clear();
  add_inputs(batch, rows);
  float* x = x_.as<float>();
  const int attention = config_.heads * config_.head_dim;
  const int qkv_width = attention + 2 * config_.kv_heads * config_.head_dim;
  const float eps = config_.norm_eps;
  Linear product{.rows = rows, .norm_eps = eps};
  const auto add = [&](const Weight& weight, const float* input, const std::vector<float>& norm,
                       bool accumulate, float* y) {
    product.weight = &weight;
    product.x = input;
    product.x_stride = weight.inputs;
    product.norm = or_null(norm);
    product.accumulate = accumulate;
    product.y = y;
    product.y_stride = weight.outputs;
    ops_.push_back(product);
  };
  const std::vector<float> none;
  float* qkv = qkv_rows_.as<float>();
  if (qkv_embed_) add(*qkv_embed_, embedded_.as<float>(), embed_norm_, false, qkv);
  add(*qkv_, x, attention_norm_, qkv_embed_ != nullptr, qkv);
  COPPICE_CHECK(qkv_->outputs == qkv_width);
  ops_.push_back(Attention{.qkv = qkv,
                           .rows = rows,
                           .heads = config_.heads,
                           .rotary = rotary_.data(),
                           .style = RotaryStyle::half_split,
                           .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                           .kv = cache.layer(layer),
                           .row = placed_.rows.data(),
                           .tail_slots = placed_.tail_slots.data(),
                           .pages = placed_.pages.data(),
                           .out = attention_.as<float>()});
  add(*attention_output_, attention_.as<float>(), none, true, x);
  product.activation = Activation::silu;
  add(*gate_up_, x, ffn_norm_, false, ffn_.as<float>());
  product.activation = Activation::none;
  add(*down_, ffn_.as<float>(), none, true, x);
  const Weight& output = output_ ? *output_ : target_->output();
  if (logit_rows > 0) {
    product.gather = batch.logit_rows.data();
    product.rows = logit_rows;
    add(output, x, output_norm_, false, logits_.as<float>());
  }
  backend_->run(ops_);
  return {
      {x, static_cast<size_t>(rows) * static_cast<size_t>(dim_)},
      {logits_.as<float>(), static_cast<size_t>(logit_rows) * static_cast<size_t>(output.outputs)}};
}

}  // namespace coppice
