// See model.h. Llama 2023, Qwen2 2024 and Gemma 3 2025 differ here in data alone: which biases and
// norms exist, how rotary pairs stand, which layers see a window.
#include "core/model.h"

#include <algorithm>
#include <cmath>

#include "core/checksum.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

std::vector<float> read_values(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.rows * view.cols));
  for (int64_t row = 0; row < view.rows; ++row) {
    dequantise_row(view, row,
                   std::span(values).subspan(static_cast<size_t>(row * view.cols),
                                             static_cast<size_t>(view.cols)));
  }
  return values;  // empty for a tensor that the architecture lacks
}

/// Values where ops read them at no cost; empty for none.
Buffer keep(Backend& backend, const std::vector<float>& values) {
  if (values.empty()) return {};
  Buffer kept = backend.allocate(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), kept.as<float>());
  return kept;
}

/// Q's, K's and V's, of each device in turn; empty for none.
std::vector<float> read_qkv_bias(const LayerTensors& layer, int ranks) {
  std::vector<float> bias;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const TensorView* part : {&layer.q_bias, &layer.k_bias, &layer.v_bias}) {
      const std::vector<float> whole = read_values(*part);
      const auto size = static_cast<std::ptrdiff_t>(whole.size()) / ranks;
      bias.insert(bias.end(), whole.begin() + rank * size, whole.begin() + (rank + 1) * size);
    }
  }
  return bias;
}

}  // namespace

std::vector<float> rotary_table(float base, int head_dim, int positions,
                                std::span<const float> factors) {
  const int half = head_dim / 2;
  std::vector<float> table(static_cast<size_t>(positions) * half * 2);
  std::vector<double> frequency(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i) {
    frequency[i] = std::pow(static_cast<double>(base), -2.0 * i / head_dim);
    if (!factors.empty()) frequency[i] /= factors[i];
  }
  float* out = table.data();
  for (int position = 0; position < positions; ++position) {
    for (int i = 0; i < half; ++i) {
      const double angle = position * frequency[i];
      *out++ = static_cast<float>(std::cos(angle));
      *out++ = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

Model::Model(const ModelSource& source, Backend& backend, int context, Devices devices)
    : config_(source.config),
      shard_(share_out(source, devices == Devices::all ? backend.ranks() : 1)),
      backend_(&backend),
      context_(context > 0 ? std::min(context, source.config.context) : source.config.context) {
  const auto pack = [&](std::initializer_list<TensorView> parts, Share share,
                        Stacking stacking = Stacking::concatenated) {
    return backend.pack(std::span(parts.begin(), parts.size()), stacking,
                        shard_.ranks > 1 ? share : Share::first);
  };
  embedding_ = source.packed_embedding;
  if (embedding_ == nullptr) embedding_ = pack({source.embedding}, Share::copied);
  if (source.output.data != source.embedding.data) {
    separate_output_ = pack({source.output}, Share::first);
  }
  output_norm_ = keep(backend, read_values(source.output_norm));
  const std::vector<float> factors = read_values(source.rotary_factors);
  for (float base : config_.rotary_bases) {
    rotary_.push_back(keep(backend, rotary_table(base, config_.head_dim, context_, factors)));
  }
  for (size_t l = 0; l < source.layers.size(); ++l) {
    const LayerTensors& tensors = source.layers[l];
    Layer layer;
    layer.kind = config_.layers[l];
    layer.qkv = pack({tensors.q, tensors.k, tensors.v}, Share::rows);
    layer.output = pack({tensors.attention_output}, Share::columns);
    layer.gate_up = pack({tensors.gate, tensors.up}, Share::rows, Stacking::gated);
    layer.down = pack({tensors.down}, Share::columns);
    layer.attention_norm = keep(backend, read_values(tensors.attention_norm));
    layer.ffn_norm = keep(backend, read_values(tensors.ffn_norm));
    layer.post_attention_norm = keep(backend, read_values(tensors.post_attention_norm));
    layer.post_ffn_norm = keep(backend, read_values(tensors.post_ffn_norm));
    layer.q_norm = keep(backend, read_values(tensors.q_norm));
    layer.k_norm = keep(backend, read_values(tensors.k_norm));
    layer.qkv_bias = keep(backend, read_qkv_bias(tensors, shard_.ranks));
    layers_.push_back(std::move(layer));
  }
  Checksum sum;
  const auto add_norm = [&](const TensorView& norm) {
    const std::vector<float> values = read_values(norm);
    sum.add(std::as_bytes(std::span(values)));
  };
  add_norm(source.output_norm);
  for (const LayerTensors& layer : source.layers) {
    add_norm(layer.attention_norm);
    add_norm(layer.ffn_norm);
  }
  fingerprint_ = sum.value();
}

size_t Model::weight_bytes() const {
  size_t bytes = embedding_->bytes + (separate_output_ ? separate_output_->bytes : 0);
  for (const Layer& layer : layers_) {
    bytes += layer.qkv->bytes + layer.output->bytes + layer.gate_up->bytes + layer.down->bytes;
  }
  return bytes;
}

std::vector<KvShape> Model::kv_shapes() const {
  return std::vector<KvShape>(layers_.size(), {shard_.kv_heads, config_.head_dim});
}

Workspace::Workspace(const Model& model, Backend& backend, WorkspaceSize size) : size_(size) {
  const ModelConfig& config = model.config();
  const Shard& own = model.shard();
  const auto floats = [&](int rows, int width) {
    return backend.allocate(static_cast<size_t>(std::max(rows, 1)) * width * sizeof(float));
  };
  x_ = floats(size.rows, config.dim);
  qkv_ = floats(size.rows, (own.heads + 2 * own.kv_heads) * config.head_dim);
  attention_ = floats(size.rows, own.heads * config.head_dim);
  ffn_ = floats(size.rows, own.ffn);
  block_ = floats(size.rows, config.dim);
  logits_ = floats(size.logit_rows, config.vocabulary);
  taps_ = floats(size.rows, std::max(size.taps, 1) * config.dim);
  // A few numbers for the host to read, wherever the logits are.
  const size_t top = size_t{4} * std::max(size.logit_rows, 1) * std::max(size.top_k, 1);
  top_logits_ = allocate_host(top);
  top_ids_ = allocate_host(top);
  placed_.rows.reserve(static_cast<size_t>(size.rows));
  ops_.reserve(static_cast<size_t>(model.layers()) * 11 + 16);
}

// The rows that the logits are read from, and those between them.
Model::RowSpan Model::wanted_rows(const ForwardBatch& batch) {
  if (batch.logit_rows.empty()) return {0, 0};
  const auto [first, last] = std::minmax_element(batch.logit_rows.begin(), batch.logit_rows.end());
  return {*first, *last - *first + 1};
}

// Behind its attention a layer works on the rows that are read from it alone: of the last layer
// that may be a few.
void Model::add_layer_ops(const Layer& layer, const KvLayer& kv, int rows, RowSpan read,
                          Workspace& workspace) const {
  const int dim = config_.dim;
  const int qkv_width = (shard_.heads + 2 * shard_.kv_heads) * config_.head_dim;
  const int attention_width = shard_.heads * config_.head_dim;
  float* x = workspace.x_.as<float>();
  float* read_x = x + static_cast<size_t>(read.first) * dim;
  std::vector<Op>& ops = workspace.ops_;

  // x += [norm](W input): through a buffer where a sum over devices or a norm stands behind it.
  const auto add_block = [&](const Weight& weight, const float* input, int width,
                             const Buffer& post_norm) {
    const bool shared = shard_.ranks > 1, normed = post_norm.bytes > 0;
    Linear product{.weight = &weight, .x = input, .x_stride = width, .rows = read.count};
    product.accumulate = !shared && !normed;
    product.y = product.accumulate ? read_x : workspace.block_.as<float>();
    product.y_stride = dim;
    ops.push_back(product);
    if (shared) {
      ops.push_back(AllReduce{product.y, read.count, dim, normed ? nullptr : read_x});
    }
    if (normed) {
      ops.push_back(
          AddNorm{product.y, post_norm.as<float>(), config_.norm_eps, read.count, dim, read_x});
    }
  };

  ops.push_back(Linear{.weight = layer.qkv.get(),
                       .x = x,
                       .x_stride = dim,
                       .rows = rows,
                       .norm = layer.attention_norm.as<float>(),
                       .norm_eps = config_.norm_eps,
                       .bias = layer.qkv_bias.as<float>(),
                       .y = workspace.qkv_.as<float>(),
                       .y_stride = qkv_width});
  ops.push_back(
      Attention{.qkv = workspace.qkv_.as<float>(),
                .rows = rows,
                .heads = shard_.heads,
                .q_norm = layer.q_norm.as<float>(),
                .k_norm = layer.k_norm.as<float>(),
                .norm_eps = config_.norm_eps,
                .rotary = rotary_[static_cast<size_t>(layer.kind.rotary_table)].as<float>(),
                .style = config_.rotary,
                .scale = config_.attention_scale,
                .window = layer.kind.window,
                .kv = kv,
                .row = workspace.placed_.rows.data(),
                .tail_slots = workspace.placed_.tail_slots.data(),
                .pages = workspace.placed_.pages.data(),
                .out = workspace.attention_.as<float>()});
  if (read.count == 0) return;
  add_block(*layer.output,
            workspace.attention_.as<float>() + static_cast<size_t>(read.first) * attention_width,
            attention_width, layer.post_attention_norm);
  ops.push_back(Linear{.weight = layer.gate_up.get(),
                       .x = read_x,
                       .x_stride = dim,
                       .rows = read.count,
                       .norm = layer.ffn_norm.as<float>(),
                       .norm_eps = config_.norm_eps,
                       .activation = config_.activation,
                       .y = workspace.ffn_.as<float>(),
                       .y_stride = shard_.ffn});
  add_block(*layer.down, workspace.ffn_.as<float>(), shard_.ffn, layer.post_ffn_norm);
}

ForwardOutput Model::forward(const ForwardBatch& batch, KVCache& cache, Workspace& workspace,
                             int kv_first) const {
  const int rows = static_cast<int>(batch.token.size());
  const int logit_rows = static_cast<int>(batch.logit_rows.size());
  const int taps = static_cast<int>(batch.tap_layers.size());
  COPPICE_CHECK(rows > 0 && rows <= workspace.size_.rows &&
                batch.parent.size() == batch.token.size());
  COPPICE_CHECK(logit_rows <= workspace.size_.logit_rows && taps <= workspace.size_.taps);
  COPPICE_CHECK(batch.top_k <= workspace.size_.top_k);
  place_rows(batch.parent, batch.sequences, workspace.placed_);
  COPPICE_CHECK(static_cast<int>(workspace.placed_.rows.size()) == rows);
  for (const AttentionRow& row : workspace.placed_.rows) COPPICE_CHECK(row.position < context_);

  const int dim = config_.dim;
  float* x = workspace.x_.as<float>();
  std::vector<Op>& ops = workspace.ops_;
  ops.clear();
  ops.push_back(Embed{embedding_.get(), batch.token.data(), rows, config_.embedding_scale, x});
  const auto add_taps = [&](int after) {
    for (int t = 0; t < taps; ++t) {
      if (batch.tap_layers[static_cast<size_t>(t)] != after) continue;
      float* out = workspace.taps_.as<float>() + static_cast<size_t>(t) * rows * dim;
      ops.push_back(Copy{x, dim, rows, dim, out, dim});
    }
  };
  add_taps(0);
  const int end = batch.layers.empty() ? layers() : batch.layers.back() + 1;
  const bool tapped_at_end =
      std::find(batch.tap_layers.begin(), batch.tap_layers.end(), end) != batch.tap_layers.end();
  size_t next_chosen = 0;
  for (int l = 0; l < layers(); ++l) {
    if (!batch.layers.empty()) {
      if (next_chosen == batch.layers.size() || batch.layers[next_chosen] != l) continue;
      ++next_chosen;
    }
    const bool all = l + 1 < end || tapped_at_end;
    add_layer_ops(layers_[static_cast<size_t>(l)], cache.layer(kv_first + l), rows,
                  all ? RowSpan{0, rows} : wanted_rows(batch), workspace);
    add_taps(l + 1);
  }
  COPPICE_CHECK(next_chosen == batch.layers.size());
  if (logit_rows > 0) {
    ops.push_back(Linear{.weight = separate_output_ ? separate_output_.get() : embedding_.get(),
                         .x = x,
                         .x_stride = dim,
                         .gather = batch.logit_rows.data(),
                         .rows = logit_rows,
                         .norm = output_norm_.as<float>(),
                         .norm_eps = config_.norm_eps,
                         .y = workspace.logits_.as<float>(),
                         .y_stride = config_.vocabulary});
    if (batch.top_k > 0) {
      ops.push_back(TopK{workspace.logits_.as<float>(), config_.vocabulary, logit_rows,
                         config_.vocabulary, batch.top_k, workspace.top_ids_.as<int32_t>(),
                         workspace.top_logits_.as<float>()});
    }
    for (Judge judged : batch.judges) {
      judged.logits = workspace.logits_.as<float>();
      judged.logits_stride = config_.vocabulary;
      ops.push_back(judged);
    }
  }
  backend_->run(ops);

  ForwardOutput out;
  out.vocabulary = config_.vocabulary;
  out.dim = dim;
  out.rows = rows;
  out.top_k = batch.top_k;
  out.logits = {workspace.logits_.as<float>(),
                static_cast<size_t>(logit_rows) * config_.vocabulary};
  out.taps = {workspace.taps_.as<float>(), static_cast<size_t>(taps) * rows * dim};
  const size_t top = static_cast<size_t>(logit_rows) * batch.top_k;
  out.top_ids = {workspace.top_ids_.as<int32_t>(), top};
  out.top_logits = {workspace.top_logits_.as<float>(), top};
  return out;
}

}  // namespace coppice
