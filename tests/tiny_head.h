// Made-up draft heads of every kind for a small model, kept as floats and written as files.
//
//   TinyHead head("eagle3", describe_target(model));
//   head.write(path);
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "decoding/draft_head.h"

namespace coppice::test {

struct TinyHead {
  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<float> values;
  };

  /// `drafted` tokens of the target's vocabulary, spread over it; 0: all, by the target's own
  /// output layer but for EAGLE-3, which always has its own.
  TinyHead(const std::string& kind, const HeadTarget& target, int drafted = 0, uint32_t seed = 5)
      : random_(seed) {
    config.kind = kind;
    config.target = target;
    config.draft_vocabulary = drafted;
    const int dim = target.dim;
    const bool layered = kind.starts_with("eagle");
    config.taps = {target.layers};
    if (kind == "eagle3") config.taps = {0, target.layers / 2, target.layers};
    if (layered) {
      config.heads = 4;
      config.kv_heads = 2;
      config.head_dim = 16;
      config.ffn = 96;
      const std::string layer = kind == "eagle" ? "layers.0." : "midlayer.";
      const int inputs = kind == "eagle" ? dim : 2 * dim;
      add("fc.weight", dim, kind == "eagle" ? 2 * dim : 3 * dim);
      if (kind == "eagle") add("fc.bias", dim);
      add(layer + "self_attn.q_proj.weight", 64, inputs);
      add(layer + "self_attn.k_proj.weight", 32, inputs);
      add(layer + "self_attn.v_proj.weight", 32, inputs);
      add(layer + "self_attn.o_proj.weight", dim, 64);
      add(layer + "mlp.gate_proj.weight", 96, dim);
      add(layer + "mlp.up_proj.weight", 96, dim);
      add(layer + "mlp.down_proj.weight", dim, 96);
      add(layer + "post_attention_layernorm.weight", dim, 0, 1.0f);
      if (kind == "eagle3") {
        add("midlayer.input_layernorm.weight", dim, 0, 1.0f);
        add("midlayer.hidden_norm.weight", dim, 0, 1.0f);
        add("norm.weight", dim, 0, 1.0f);
      }
    } else {
      config.count = 3;
      config.blocks = 2;
      for (int head = 0; head < config.count; ++head) {
        const std::string name = std::to_string(head);
        add(name + ".0.linear.weight", dim, kind == "hydra" ? (head + 2) * dim : dim);
        if (kind == "hydra") add(name + ".0.res_connection.weight", dim, (head + 2) * dim);
        add(name + ".0.linear.bias", dim);
        add(name + ".1.linear.weight", dim, dim);
        add(name + ".1.linear.bias", dim);
      }
    }
    const int rows = drafted > 0 ? drafted : target.vocabulary;
    if (drafted > 0 || kind == "eagle3") add("lm_head.weight", rows, dim, 0.0f, 4.0f);
    for (int row = 0; row < drafted; ++row) {
      d2t.push_back(int64_t{row} * target.vocabulary / drafted - row);
    }
  }

  int32_t target_id(int row) const {
    return static_cast<int32_t>(d2t.empty() ? row : row + d2t[static_cast<size_t>(row)]);
  }

  void add(const std::string& name, int rows, int cols = 0, float mean = 0.0f, float gain = 1.0f) {
    const float deviation = cols > 0 ? gain / std::sqrt(static_cast<float>(cols)) : 0.1f;
    std::normal_distribution<float> normal(mean, deviation);
    Tensor& made = tensors[name];
    made.shape = cols > 0 ? std::vector<int64_t>{rows, cols} : std::vector<int64_t>{rows};
    made.values.resize(static_cast<size_t>(rows) * static_cast<size_t>(std::max(cols, 1)));
    for (float& value : made.values) value = normal(random_);
  }

  /// `prefix` in front of every name; `published`: no config inside.
  void write(const std::filesystem::path& path, const std::string& prefix = "",
             bool published = false) const {
    std::vector<SafeTensor> out;
    for (const auto& [name, tensor] : tensors) {
      out.push_back({prefix + name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
    }
    if (!d2t.empty()) {
      out.push_back(
          {"d2t", "I64", {static_cast<int64_t>(d2t.size())}, std::as_bytes(std::span(d2t))});
    }
    std::map<std::string, std::string> metadata;
    if (!published) metadata["coppice"] = head_config_text(config);
    write_safetensors(path, out, metadata);
  }

  HeadConfig config;
  std::map<std::string, Tensor> tensors;
  std::vector<int64_t> d2t;

 private:
  std::mt19937 random_;
};

}  // namespace coppice::test
