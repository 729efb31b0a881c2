// See head_net.h.
#include "experiments/training/head_net.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"

namespace coppice {
namespace {

/// Rows moved down by `count`: out[p] = x[p - count], zeros above. Rows are the last but one.
at::Tensor shift(const at::Tensor& x, int64_t count) {
  if (count == 0) return x;
  const int64_t rows = x.size(-2);
  if (count >= rows) return at::zeros_like(x);
  return at::cat({at::zeros_like(x.narrow(-2, 0, count)), x.narrow(-2, 0, rows - count)}, -2);
}

}  // namespace

HeadNet::HeadNet(const HeadConfig& config, const TargetTensors& target, uint64_t seed,
                 at::ScalarType type)
    : TrainNet(config, target, type) {
  at::manual_seed(seed);
  const int64_t dim = config.target.dim;
  const bool layered = config.kind.starts_with("eagle");
  for (int head = 0; head < config.count && !layered; ++head) {
    for (int block = 0; block < config.blocks; ++block) {
      const auto name = [&](const char* part) {
        return fmt::format("{}.{}.{}", head, block, part);
      };
      const bool joins = config.kind == "hydra" && block == 0;
      const int64_t inputs = joins ? (head + 2) * dim : dim;
      if (joins) {
        add_matrix(name("linear.weight"), dim, inputs);
        at::Tensor pass = at::randn({dim, inputs}) * (0.1 / std::sqrt(static_cast<double>(inputs)));
        pass.narrow(1, 0, dim).add_(at::eye(dim));
        add(name("res_connection.weight"), pass);
      } else {  // Cai 2024, section 2.2.1: W1 begins at zero, so that a head begins as the target
        add(name("linear.weight"), at::zeros({dim, inputs}));
      }
      add(name("linear.bias"), at::zeros({dim}));
    }
  }
  if (layered) {
    const bool third = config.kind == "eagle3";
    const std::string layer = third ? "midlayer." : "layers.0.";
    const int64_t inputs = third ? 2 * dim : dim;
    const int64_t q = int64_t{config.heads} * config.head_dim;
    const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
    const int64_t joined = third ? static_cast<int64_t>(config.taps.size()) * dim : 2 * dim;
    // The highest state passes: the target's output layer can read what comes of it.
    at::Tensor pass = at::randn({dim, joined}) * (0.1 / std::sqrt(static_cast<double>(joined)));
    pass.narrow(1, joined - dim, dim).add_(at::eye(dim));
    add("fc.weight", pass);
    if (!third) add("fc.bias", at::zeros({dim}));
    add_matrix(layer + "self_attn.q_proj.weight", q, inputs);
    add_matrix(layer + "self_attn.k_proj.weight", kv, inputs);
    add_matrix(layer + "self_attn.v_proj.weight", kv, inputs);
    add_matrix(layer + "self_attn.o_proj.weight", dim, q, 0.5);
    add_matrix(layer + "mlp.gate_proj.weight", config.ffn, dim);
    add_matrix(layer + "mlp.up_proj.weight", config.ffn, dim);
    add_matrix(layer + "mlp.down_proj.weight", dim, config.ffn, 0.5);
    add(layer + "post_attention_layernorm.weight", at::ones({dim}));
    if (third) {
      add("midlayer.input_layernorm.weight", at::ones({dim}));
      add("midlayer.hidden_norm.weight", at::ones({dim}));
      add("norm.weight", target.norm.clone());
    }
  }
  if (config.kind == "eagle") {  // the target's output layer stays as it is
    add_constant("lm_head.weight", target.output);
  } else {
    add("lm_head.weight", target.output.clone());
  }
}

void HeadNet::add_matrix(const std::string& name, int64_t rows, int64_t cols, double gain) {
  add(name, at::randn({rows, cols}) * (gain / std::sqrt(static_cast<double>(cols))));
}

int64_t HeadNet::first_row(const Example& example, int step) {
  return std::max<int64_t>(step, example.answer - 2);
}

at::Tensor HeadNet::blocks(at::Tensor x, int head, int first) const {
  for (int block = first; block < config_.blocks; ++block) {
    const std::string name = fmt::format("{}.{}.linear.", head, block);
    x = x + at::silu(at::linear(x, weight(name + "weight"), weight(name + "bias")));
  }
  return x;
}

std::vector<at::Tensor> HeadNet::forward(const Example& example, int steps) const {
  if (config_.kind == "medusa") return medusa(example, std::min(steps, config_.count));
  if (config_.kind == "hydra") return hydra(example, std::min(steps, config_.count));
  return unroll(example, steps, 0.0, nullptr);
}

std::vector<at::Tensor> HeadNet::medusa(const Example& example, int steps) const {
  const at::Tensor state = normed_last(example);
  std::vector<at::Tensor> out;
  for (int head = 0; head < steps; ++head) {
    const int64_t first = first_row(example, head) - head;
    const int64_t rows = example.tokens.size(0) - 2 - head - first;
    if (rows <= 0) break;
    out.push_back(
        at::linear(blocks(state.narrow(0, first, rows), head, 0), weight("lm_head.weight")));
  }
  return out;
}

std::vector<at::Tensor> HeadNet::hydra(const Example& example, int steps) const {
  const at::Tensor state = normed_last(example), embedded = embed(example);
  std::vector<at::Tensor> out;
  for (int head = 0; head < steps; ++head) {
    const int64_t first = first_row(example, head) - head;
    const int64_t rows = example.tokens.size(0) - 2 - head - first;
    if (rows <= 0) break;
    std::vector<at::Tensor> parts = {state.narrow(0, first, rows)};
    for (int token = 0; token <= head; ++token) {
      parts.push_back(embedded.narrow(0, first + 1 + token, rows));
    }
    const at::Tensor x = at::cat(parts, 1);
    const std::string name = fmt::format("{}.0.", head);
    const at::Tensor y =
        at::linear(x, weight(name + "res_connection.weight")) +
        at::silu(at::linear(x, weight(name + "linear.weight"), weight(name + "linear.bias")));
    out.push_back(at::linear(blocks(y, head, 1), weight("lm_head.weight")));
  }
  return out;
}

// Row p reads the state at p and the token at p + 1. In step s it stands s drafts behind the last
// true state, p - s: it reads what step s - 1 gave at p - 1, and sees the keys of step 0 up to
// p - s and those of step j at p - s + j: what drafting will see (Li 2025, section 3.2, fig. 6).
// Of the prompt only step 0's keys are needed: all else begins at row `base`.
std::vector<at::Tensor> HeadNet::unroll(const Example& example, int steps, double noise,
                                        at::Tensor* features) const {
  const bool third = config_.kind == "eagle3";
  const std::string layer = third ? "midlayer." : "layers.0.";
  const int64_t all = example.tokens.size(0) - 2;
  std::vector<at::Tensor> out;
  if (all <= 0) return out;
  const int64_t base = std::max<int64_t>(0, first_row(example, 0) - (steps - 1));
  const int64_t rows = all - base;
  if (rows <= 0) return out;
  const int64_t heads = config_.heads, kv_heads = config_.kv_heads, head_dim = config_.head_dim;
  const double eps = config_.norm_eps;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const at::Tensor embedded = embed(example).narrow(0, 1, all);
  const at::Tensor position = at::arange(all, type_).unsqueeze(1);
  const at::Tensor frequency =
      at::pow(static_cast<double>(config_.rotary_base),
              at::arange(head_dim / 2, at::kDouble) * (-2.0 / static_cast<double>(head_dim)));
  const at::Tensor angle = (position.to(at::kDouble) * frequency.unsqueeze(0)).to(type_);
  const at::Tensor cosine = at::cos(angle).to(device_), sine = at::sin(angle).to(device_);
  const at::Tensor index = at::arange(all, at::kLong).to(device_);
  const auto tail = [&](const at::Tensor& x) { return x.narrow(-2, x.size(-2) - rows, rows); };
  /// (rows of x, count head_dim) to (count, rows of x, head_dim), of a text's last rows.
  const auto split = [&](const at::Tensor& x, int64_t count) {
    return x.view({x.size(0), count, head_dim}).transpose(0, 1);
  };
  const auto turned = [&](const at::Tensor& x) {
    const int64_t count = x.size(-2);
    return rotate(x, cosine.narrow(0, all - count, count), sine.narrow(0, all - count, count));
  };
  const auto grouped = [&](const at::Tensor& x) {
    return x.repeat_interleave(heads / kv_heads, 0);
  };

  at::Tensor state;
  if (third) {
    const int64_t taps = example.states.size(0);
    state = at::linear(
        example.states.narrow(1, 0, all).transpose(0, 1).reshape({all, taps * config_.target.dim}),
        weight("fc.weight"));
  } else {
    state = normed_last(example).narrow(0, 0, all);
    if (noise > 0.0) {
      const auto random = at::make_generator<at::CPUGeneratorImpl>(example.seed);
      const at::Tensor drawn = at::rand(state.sizes(), random, at::TensorOptions().dtype(type_));
      state = state + (drawn.to(device_) * 2.0 - 1.0) * noise;
    }
  }
  const at::Tensor tokens =
      third ? rms_norm(embedded, weight("midlayer.input_layernorm.weight"), eps) : embedded;
  std::vector<at::Tensor> keys, values;
  for (int step = 0; step < steps && step < rows; ++step) {
    const bool begins = step == 0;
    if (!begins) state = shift(state, 1);
    at::Tensor x, input;
    if (third) {
      x = state;
      input = at::cat({begins ? tokens : tail(tokens),
                       rms_norm(state, weight("midlayer.hidden_norm.weight"), eps)},
                      1);
    } else {
      x = at::linear(at::cat({begins ? tokens : tail(tokens), state}, 1), weight("fc.weight"),
                     weight("fc.bias"));
      input = x;
    }
    keys.push_back(grouped(
        turned(split(at::linear(input, weight(layer + "self_attn.k_proj.weight")), kv_heads))));
    values.push_back(
        grouped(split(at::linear(input, weight(layer + "self_attn.v_proj.weight")), kv_heads)));
    x = tail(x);
    const at::Tensor q =
        turned(split(at::linear(tail(input), weight(layer + "self_attn.q_proj.weight")), heads));
    const at::Tensor unseen =
        index.unsqueeze(0) > (index.narrow(0, base, rows) - step).unsqueeze(1);
    std::vector<at::Tensor> scores = {
        (at::matmul(q, keys[0].transpose(1, 2)) * scale)
            .masked_fill(unseen, -std::numeric_limits<double>::infinity())};
    for (int j = 1; j <= step; ++j) {
      const at::Tensor key = shift(keys[static_cast<size_t>(j)], step - j);
      scores.push_back((q * key).sum(-1, true) * scale);
    }
    const at::Tensor share = at::softmax(at::cat(scores, -1), -1);
    at::Tensor attended = at::matmul(share.narrow(-1, 0, all), values[0]);
    for (int j = 1; j <= step; ++j) {
      attended = attended +
                 share.narrow(-1, all + j - 1, 1) * shift(values[static_cast<size_t>(j)], step - j);
    }
    x = x + at::linear(attended.transpose(0, 1).reshape({rows, heads * head_dim}),
                       weight(layer + "self_attn.o_proj.weight"));
    const at::Tensor h = rms_norm(x, weight(layer + "post_attention_layernorm.weight"), eps);
    const at::Tensor gate = at::silu(at::linear(h, weight(layer + "mlp.gate_proj.weight")));
    const at::Tensor up = at::linear(h, weight(layer + "mlp.up_proj.weight"));
    x = x + at::linear(gate * up, weight(layer + "mlp.down_proj.weight"));
    const int64_t first = first_row(example, step) - base;
    const at::Tensor guess = x.narrow(0, first, rows - first);
    if (begins && features != nullptr) *features = guess;
    out.push_back(
        third ? at::linear(rms_norm(guess, weight("norm.weight"), eps), weight("lm_head.weight"))
              : at::linear(guess, target_.output));
    state = x;
  }
  return out;
}

HeadLoss HeadNet::loss(const Example& example, const LoopOptions& options) const {
  at::Tensor features;  // EAGLE: the first guesses at the next states
  const std::vector<at::Tensor> logits =
      config_.kind.starts_with("eagle") ? unroll(example, options.unroll, options.noise, &features)
                                        : forward(example, config_.count);
  const int64_t tokens = example.tokens.size(0);
  // The target's distribution of token i + 1 stands at row i.
  const int64_t from = first_row(example, 0) + 1;
  const at::Tensor last = normed_last(example);
  const at::Tensor taught =
      options.distill
          ? at::softmax(at::linear(last.narrow(0, from, tokens - from), target_.output), -1)
          : at::Tensor();
  const at::Tensor rows = target_.draft_row.index_select(0, example.tokens);
  const at::Tensor learnt = rows.ge(0).to(type_);
  HeadLoss loss{at::zeros({}, at::TensorOptions().dtype(type_).device(device_))};
  double share = options.cross_entropy;
  for (size_t k = 0; k < logits.size(); ++k) {
    const int64_t label = first_row(example, static_cast<int>(k)) + 2;
    const int64_t count = logits[k].size(0);
    const at::Tensor mask = learnt.narrow(0, label, count);
    const at::Tensor log_q = at::log_softmax(logits[k], -1);
    const at::Tensor entropy =
        options.distill
            ? -(taught.narrow(0, label - 1 - from, count) * log_q).sum(-1)
            : -log_q.gather(1, rows.narrow(0, label, count).clamp_min(0).unsqueeze(1)).squeeze(1);
    loss.total = loss.total + share * (entropy * mask).sum() / mask.sum().clamp_min(1.0);
    if (k == 0) loss.labels = static_cast<int64_t>(mask.sum().item<double>());
    share *= options.step_weight;
  }
  // Li 2024, eq. 3: L_reg = Smooth L1(f_{i+1}, Draft_Model(T_{2:i+1}, F_{1:i})).
  if (config_.kind == "eagle" && !logits.empty() && options.regression > 0.0) {
    loss.total =
        loss.total +
        options.regression * at::smooth_l1_loss(features, last.narrow(0, from, features.size(0)));
  }
  return loss;
}

void HeadNet::count_hits(const Example& example, int steps, Hits& hits) const {
  const std::vector<at::Tensor> logits = forward(example, steps);
  hits.reached.resize(std::max(hits.reached.size(), logits.size()));
  hits.right.resize(hits.reached.size());
  const at::Tensor rows = target_.draft_row.index_select(0, example.tokens);
  at::Tensor alive;  // by the true state that the drafts begin at, from first_row(0) on
  for (size_t k = 0; k < logits.size(); ++k) {
    const int64_t first = first_row(example, static_cast<int>(k));
    const int64_t before = first_row(example, 0) + static_cast<int64_t>(k) - first;
    const int64_t count = logits[k].size(0) - before;
    if (count <= 0) break;
    const at::Tensor right =
        logits[k].narrow(0, before, count).argmax(-1).eq(rows.narrow(0, first + before + 2, count));
    alive = k == 0 ? at::ones_like(right) : alive.narrow(0, 0, count);
    hits.reached[k] += alive.sum().item<int64_t>();
    alive = alive.logical_and(right);
    hits.right[k] += alive.sum().item<int64_t>();
  }
}

}  // namespace coppice
