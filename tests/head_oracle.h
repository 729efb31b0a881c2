// Draft heads as plain loops in double precision, whole sequences at once, straight from the
// papers' equations: what decoding/feature_layer.h and the heads' drafters must agree with.
//
//   HeadOracle oracle(head, embedding, output, output_norm, eps);
//   std::vector<double> logits = oracle.eagle(states, tokens);
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "tests/tiny_head.h"

namespace coppice::test {

using Row = std::vector<double>;

inline Row read_row(const TensorView& view, int64_t row) {
  std::vector<float> values(static_cast<size_t>(view.cols));
  dequantise_row(view, row, values);
  return {values.begin(), values.end()};
}

inline Row joined(std::initializer_list<Row> parts) {
  Row out;
  for (const Row& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

class HeadOracle {
 public:
  /// `rounds`: K and V are stored as f16, as the cache does.
  HeadOracle(const TinyHead& head, const ModelSource& target, bool rounds = true)
      : head_(head), target_(target), rounds_(rounds) {}

  /// Medusa 2024, eq. 1: what head `index` says behind the state.
  Row medusa(const Row& state, int index) const {
    Row x = target_norm(state);
    return output(blocks(x, index, 0));
  }

  /// Hydra 2024, section 3.1: `path` begins with node 0's token.
  Row hydra(const Row& state, const std::vector<int32_t>& path) const {
    const int index = static_cast<int>(path.size()) - 1;
    Row x = target_norm(state);
    for (const int32_t token : path) x = joined({x, embed(token)});
    const std::string name = std::to_string(index) + ".0.";
    Row y = times(name + "res_connection.weight", x);
    add(y, silu(plus_bias(times(name + "linear.weight", x), name + "linear.bias")));
    return output(blocks(y, index, 1));
  }

  /// Both EAGLEs: states[p] are the target's taps at position p, then (behind `certain` of them)
  /// nothing: the rows read what the layer gave before. tokens[p] follows position p. Returns the
  /// logits of the last row.
  Row eagle(const std::vector<std::vector<Row>>& states, const std::vector<int32_t>& tokens) const {
    const bool third = head_.config.kind == "eagle3";
    const std::string layer = third ? "midlayer." : "layers.0.";
    std::vector<Row> keys, values, given;
    for (size_t p = 0; p < tokens.size(); ++p) {
      const bool certain = p < states.size();
      const Row e = embed(tokens[p]);
      Row x, input;
      if (third) {
        Row taps;
        for (size_t t = 0; certain && t < states[p].size(); ++t)
          taps = joined({taps, states[p][t]});
        x = certain ? times("fc.weight", taps) : given.back();
        input = joined(
            {norm(e, "midlayer.input_layernorm.weight"), norm(x, "midlayer.hidden_norm.weight")});
      } else {
        const Row f = certain ? target_norm(states[p][0]) : given.back();
        x = plus_bias(times("fc.weight", joined({e, f})), "fc.bias");
        input = x;
      }
      attend(layer, input, keys, values, x);
      const Row h = norm(x, layer + "post_attention_layernorm.weight");
      Row gate = silu(times(layer + "mlp.gate_proj.weight", h));
      const Row up = times(layer + "mlp.up_proj.weight", h);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i];
      add(x, times(layer + "mlp.down_proj.weight", gate));
      given.push_back(x);
    }
    return output(third ? norm(given.back(), "norm.weight") : given.back());
  }

 private:
  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static Row silu(Row x) {
    for (double& value : x) value /= 1.0 + std::exp(-value);
    return x;
  }
  static Row rms(const Row& x, const std::function<double(size_t)>& weight, double eps) {
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    Row out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight(i);
    return out;
  }
  const std::vector<float>& values_of(const std::string& name) const {
    return head_.tensors.at(name).values;
  }
  Row norm(const Row& x, const std::string& name) const {
    return rms(
        x, [&](size_t i) { return values_of(name)[i]; }, head_.config.norm_eps);
  }
  Row target_norm(const Row& x) const {
    const Row weight = read_row(target_.output_norm, 0);
    return rms(
        x, [&](size_t i) { return weight[i]; }, target_.config.norm_eps);
  }
  Row times(const std::string& name, const Row& x) const {
    const std::vector<float>& w = values_of(name);
    Row y(w.size() / x.size());
    for (size_t r = 0; r < y.size(); ++r) {
      for (size_t c = 0; c < x.size(); ++c) y[r] += double{w[r * x.size() + c]} * x[c];
    }
    return y;
  }
  Row plus_bias(Row x, const std::string& name) const {
    for (size_t i = 0; i < x.size(); ++i) x[i] += values_of(name)[i];
    return x;
  }
  Row blocks(Row x, int index, int first) const {
    for (int b = first; b < head_.config.blocks; ++b) {
      const std::string name = std::to_string(index) + "." + std::to_string(b) + ".linear.";
      add(x, silu(plus_bias(times(name + "weight", x), name + "bias")));
    }
    return x;
  }
  Row embed(int32_t token) const { return read_row(target_.embedding, token); }
  Row output(const Row& x) const {
    if (head_.tensors.contains("lm_head.weight")) return times("lm_head.weight", x);
    Row y(static_cast<size_t>(target_.output.rows));
    for (size_t r = 0; r < y.size(); ++r) {
      const Row w = read_row(target_.output, static_cast<int64_t>(r));
      for (size_t c = 0; c < x.size(); ++c) y[r] += w[c] * x[c];
    }
    return y;
  }
  double stored(double x) const {
    return rounds_ ? half_to_float(float_to_half(static_cast<float>(x))) : x;
  }

  /// One more row of causal attention, added to x; rotary pairs (i, i + head_dim / 2).
  void attend(const std::string& layer, const Row& input, std::vector<Row>& keys,
              std::vector<Row>& values, Row& x) const {
    const HeadConfig& config = head_.config;
    const auto dim = static_cast<size_t>(config.head_dim);
    const auto position = static_cast<double>(keys.size());
    const auto rotate = [&](Row row) {
      for (size_t head = 0; head < row.size() / dim; ++head) {
        for (size_t i = 0; i < dim / 2; ++i) {
          const double angle =
              position * std::pow(double{config.rotary_base},
                                  -2.0 * static_cast<double>(i) / static_cast<double>(dim));
          double& a = row[head * dim + i];
          double& b = row[head * dim + i + dim / 2];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = a * std::sin(angle) + b * std::cos(angle);
          a = turned;
        }
      }
      return row;
    };
    const Row q = rotate(times(layer + "self_attn.q_proj.weight", input));
    keys.push_back(rotate(times(layer + "self_attn.k_proj.weight", input)));
    values.push_back(times(layer + "self_attn.v_proj.weight", input));
    for (double& value : keys.back()) value = stored(value);
    for (double& value : values.back()) value = stored(value);
    const auto heads = static_cast<size_t>(config.heads);
    const size_t group = heads / static_cast<size_t>(config.kv_heads);
    Row out(heads * dim);
    for (size_t head = 0; head < heads; ++head) {
      const size_t kv = head / group * dim;
      Row weight(keys.size());
      double total = 0.0;
      for (size_t k = 0; k < keys.size(); ++k) {
        double score = 0.0;
        for (size_t i = 0; i < dim; ++i) score += q[head * dim + i] * keys[k][kv + i];
        total += weight[k] = std::exp(score / std::sqrt(static_cast<double>(dim)));
      }
      for (size_t k = 0; k < keys.size(); ++k) {
        for (size_t i = 0; i < dim; ++i) {
          out[head * dim + i] += weight[k] / total * values[k][kv + i];
        }
      }
    }
    add(x, times(layer + "self_attn.o_proj.weight", out));
  }

  const TinyHead& head_;
  const ModelSource& target_;
  bool rounds_;
};

}  // namespace coppice::test
