// See draft_net.h.
#include "experiments/training/draft_net.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "decoding/distilled_model.h"

namespace coppice {

DraftNet::DraftNet(const HeadConfig& config, const ModelSource& source, const TargetTensors& target,
                   at::ScalarType type)
    : TrainNet(config, target, type), model_(distilled_config(source.config, config)) {
  for (size_t own = 0; own < config.layers.size(); ++own) {
    const LayerTensors& from = source.layers[static_cast<size_t>(config.layers[own])];
    for (const LayerPart& part : kLayerParts) {
      const TensorView& view = from.*part.view;
      if (view.data == nullptr) continue;
      const at::Tensor values = read_rows(view);
      add(fmt::format("blk.{}.{}", own, part.name),
          part.rows == Extent::one ? values.squeeze(0) : values);
    }
  }
  add("output_norm.weight", target.norm);
  add("output.weight", target.output);
  factors_ = at::ones({model_.head_dim / 2}, at::kDouble);
  if (source.rotary_factors.data != nullptr) {
    const at::Tensor factors = read_rows(source.rotary_factors).squeeze(0);
    add_constant("rope_freqs.weight", factors);
    factors_ = factors.to(at::kDouble);
  }
}

at::Tensor DraftNet::any(const std::string& name) const {
  for (const auto& [known, value] : parameters()) {
    if (known == name) return value;
  }
  return {};
}

std::vector<DraftNet::Angles> DraftNet::angles(int64_t positions) const {
  const int64_t half = model_.head_dim / 2;
  const at::Tensor position = at::arange(positions, at::kDouble).unsqueeze(1);
  std::vector<Angles> made;
  for (const float base : model_.rotary_bases) {
    const at::Tensor frequency =
        at::pow(static_cast<double>(base),
                at::arange(half, at::kDouble) * (-1.0 / static_cast<double>(half))) /
        factors_;
    const at::Tensor angle = position * frequency;
    made.push_back({at::cos(angle).to(device_, type_), at::sin(angle).to(device_, type_)});
  }
  return made;
}

// What attention adds to the rows from `first` on; x: all rows.
at::Tensor DraftNet::attend(const at::Tensor& x, const std::string& layer, const LayerKind& kind,
                            const Angles& turn, int64_t first) const {
  const int64_t all = x.size(0), rows = all - first;
  const int64_t group = model_.heads / model_.kv_heads;
  const double eps = model_.norm_eps;
  const at::Tensor input = rms_norm(x, weight(layer + "attn_norm.weight"), eps);
  const auto project = [&](const at::Tensor& from, const std::string& name, int64_t heads) {
    const at::Tensor y =
        at::linear(from, weight(layer + name + ".weight"), any(layer + name + ".bias"));
    return y.view({from.size(0), heads, model_.head_dim}).transpose(0, 1);
  };
  const auto turned = [&](at::Tensor y, const std::string& norm, int64_t from) {
    if (const at::Tensor w = any(layer + norm); w.defined()) y = rms_norm(y, w, eps);
    const int64_t count = y.size(1);
    return rotate(y, turn.cosine.narrow(0, from, count), turn.sine.narrow(0, from, count),
                  model_.rotary);
  };
  const at::Tensor q = turned(project(input.narrow(0, first, rows), "attn_q", model_.heads),
                              "attn_q_norm.weight", first);
  const at::Tensor k = turned(project(input, "attn_k", model_.kv_heads), "attn_k_norm.weight", 0)
                           .repeat_interleave(group, 0);
  const at::Tensor v = project(input, "attn_v", model_.kv_heads).repeat_interleave(group, 0);
  const at::Tensor index = at::arange(all, at::kLong).to(device_);
  const at::Tensor key = index.unsqueeze(0), query = index.narrow(0, first, rows).unsqueeze(1);
  at::Tensor unseen = key > query;
  if (kind.window > 0) unseen = unseen.logical_or(query - key >= kind.window);
  const at::Tensor scores = (at::matmul(q, k.transpose(1, 2)) * model_.attention_scale)
                                .masked_fill(unseen, -std::numeric_limits<double>::infinity());
  const at::Tensor attended = at::matmul(at::softmax(scores, -1), v)
                                  .transpose(0, 1)
                                  .reshape({rows, model_.heads * model_.head_dim});
  const at::Tensor y = at::linear(attended, weight(layer + "attn_output.weight"));
  const at::Tensor post = any(layer + "post_attention_norm.weight");
  return post.defined() ? rms_norm(y, post, eps) : y;
}

at::Tensor DraftNet::feed_forward(const at::Tensor& x, const std::string& layer) const {
  const double eps = model_.norm_eps;
  const at::Tensor input = rms_norm(x, weight(layer + "ffn_norm.weight"), eps);
  const at::Tensor gate = at::linear(input, weight(layer + "ffn_gate.weight"));
  const at::Tensor opened =
      model_.activation == Activation::gelu_tanh ? at::gelu(gate, "tanh") : at::silu(gate);
  const at::Tensor y = at::linear(opened * at::linear(input, weight(layer + "ffn_up.weight")),
                                  weight(layer + "ffn_down.weight"));
  const at::Tensor post = any(layer + "post_ffw_norm.weight");
  return post.defined() ? rms_norm(y, post, eps) : y;
}

at::Tensor DraftNet::forward(const Example& example) const {
  const int64_t all = example.tokens.size(0) - 1;
  const std::vector<Angles> turns = angles(all);
  at::Tensor x = embed(example).narrow(0, 0, all);
  for (size_t own = 0; own < model_.layers.size(); ++own) {
    const LayerKind& kind = model_.layers[own];
    const std::string layer = fmt::format("blk.{}.", own);
    // Behind the last attention only the answer's rows are read.
    const int64_t first = own + 1 < model_.layers.size() ? 0 : example.answer - 1;
    const at::Tensor attended =
        attend(x, layer, kind, turns[static_cast<size_t>(kind.rotary_table)], first);
    x = x.narrow(0, first, all - first) + attended;
    x = x + feed_forward(x, layer);
  }
  return at::linear(rms_norm(x, weight("output_norm.weight"), model_.norm_eps),
                    weight("output.weight"));
}

HeadLoss DraftNet::loss(const Example& example, const LoopOptions& options) const {
  const at::Tensor log_q = at::log_softmax(forward(example), -1);
  const int64_t count = log_q.size(0);
  const at::Tensor rows =
      target_.draft_row.index_select(0, example.tokens.narrow(0, example.answer, count));
  const at::Tensor mask = rows.ge(0).to(type_);
  at::Tensor entropy;
  if (options.distill) {
    // The target's distribution of a token stands at the row before it.
    const at::Tensor last = normed_last(example).narrow(0, example.answer - 1, count);
    entropy = -(at::softmax(at::linear(last, target_.output), -1) * log_q).sum(-1);
  } else {
    entropy = -log_q.gather(1, rows.clamp_min(0).unsqueeze(1)).squeeze(1);
  }
  return {options.cross_entropy * (entropy * mask).sum() / mask.sum().clamp_min(1.0),
          static_cast<int64_t>(mask.sum().item<double>())};
}

void DraftNet::count_hits(const Example& example, int steps, Hits& hits) const {
  const at::Tensor guessed = forward(example).argmax(-1);
  const int64_t count = guessed.size(0);
  const at::Tensor right = guessed.eq(
      target_.draft_row.index_select(0, example.tokens.narrow(0, example.answer, count)));
  hits.reached.resize(std::max(hits.reached.size(), static_cast<size_t>(steps)));
  hits.right.resize(hits.reached.size());
  // Behind right guesses it reads what the text has: a guess is the same at any distance.
  at::Tensor alive = at::ones_like(right);
  for (int64_t k = 0; k < std::min<int64_t>(steps, count); ++k) {
    alive = alive.narrow(0, 0, count - k);
    hits.reached[static_cast<size_t>(k)] += alive.sum().item<int64_t>();
    alive = alive.logical_and(right.narrow(0, k, count - k));
    hits.right[static_cast<size_t>(k)] += alive.sum().item<int64_t>();
  }
}

}  // namespace coppice
