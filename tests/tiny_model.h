// A random transformer small enough to enumerate with: real architecture, made-up weights. Every
// test that needs a model but no meaning uses it.
//
//   TinyModel tiny({.vocabulary = 37});
//   Model model(tiny.source(), *backend);
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "core/model_source.h"
#include "core/tokenizer.h"

namespace coppice::test {

struct TinyShape {
  int vocabulary = 61;
  int layers = 3;
  int dim = 64;
  int ffn = 96;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 32;
  int context = 512;
  bool gemma_like = false;  // extra norms, GELU, a sliding window on two of three layers
  bool biases = false;      // qwen2-like
  DType type = DType::f32;  // of the matrices: f32 or q8_0
  float sharpness = 6.0f;   // scale of the logits: larger is more predictable
  uint32_t seed = 1;
};

class TinyModel {
 public:
  explicit TinyModel(const TinyShape& shape) : shape_(shape), random_(shape.seed) {
    ModelConfig& config = source_.config;
    source_.name = "tiny";
    config.architecture = shape.gemma_like ? "gemma3" : shape.biases ? "qwen2" : "llama";
    config.name = "tiny";
    config.dim = shape.dim;
    config.ffn = shape.ffn;
    config.heads = shape.heads;
    config.kv_heads = shape.kv_heads;
    config.head_dim = shape.head_dim;
    config.vocabulary = shape.vocabulary;
    config.context = shape.context;
    config.norm_eps = 1e-5f;
    config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    config.activation = shape.gemma_like ? Activation::gelu_tanh : Activation::silu;
    config.rotary =
        shape.biases || shape.gemma_like ? RotaryStyle::half_split : RotaryStyle::adjacent;
    config.rotary_bases =
        shape.gemma_like ? std::vector<float>{1e6f, 1e4f} : std::vector<float>{1e4f};
    const int q = shape.heads * shape.head_dim;
    const int kv = shape.kv_heads * shape.head_dim;
    source_.embedding = matrix(shape.vocabulary, shape.dim, 1.0f);
    source_.output = matrix(shape.vocabulary, shape.dim, shape.sharpness);
    source_.output_norm = vector(shape.dim, 1.0f, 0.1f);
    for (int l = 0; l < shape.layers; ++l) {
      const bool local = shape.gemma_like && l % 3 != 2;
      config.layers.push_back({.window = local ? 24 : 0, .rotary_table = local ? 1 : 0});
      LayerTensors layer;
      layer.attention_norm = vector(shape.dim, 1.0f, 0.1f);
      layer.q = matrix(q, shape.dim, 1.0f);
      layer.k = matrix(kv, shape.dim, 1.0f);
      layer.v = matrix(kv, shape.dim, 1.0f);
      if (shape.biases) {
        layer.q_bias = vector(q, 0.0f, 0.5f);
        layer.k_bias = vector(kv, 0.0f, 0.5f);
        layer.v_bias = vector(kv, 0.0f, 0.5f);
      }
      layer.attention_output = matrix(shape.dim, q, 1.0f);
      layer.ffn_norm = vector(shape.dim, 1.0f, 0.1f);
      layer.gate = matrix(shape.ffn, shape.dim, 1.0f);
      layer.up = matrix(shape.ffn, shape.dim, 1.0f);
      layer.down = matrix(shape.dim, shape.ffn, 1.0f);
      if (shape.gemma_like) {
        layer.q_norm = vector(shape.head_dim, 1.0f, 0.1f);
        layer.k_norm = vector(shape.head_dim, 1.0f, 0.1f);
        layer.post_attention_norm = vector(shape.dim, 1.0f, 0.1f);
        layer.post_ffn_norm = vector(shape.dim, 1.0f, 0.1f);
      }
      source_.layers.push_back(layer);
    }
  }
  TinyModel(const TinyModel&) = delete;

  const ModelSource& source() const { return source_; }

  /// A vocabulary whose token i is the text "<i>"; id 0 is the end token.
  Tokenizer tokenizer() const {
    Vocabulary vocabulary;
    vocabulary.name = "tiny";
    vocabulary.pre_tokenizer = "gpt-2";
    for (int i = 0; i < shape_.vocabulary; ++i) {
      vocabulary.tokens.push_back("<" + std::to_string(i) + ">");
      vocabulary.types.push_back(i == 0 ? TokenType::control : TokenType::normal);
    }
    vocabulary.eos = 0;
    return Tokenizer(std::move(vocabulary));
  }

 private:
  TensorView vector(int size, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(static_cast<size_t>(size));
    for (float& value : values) value = normal(random_);
    return store(DType::f32, 1, size, values.data(), values.size() * sizeof(float));
  }

  // Rows of unit gain: outputs keep the size of the inputs.
  TensorView matrix(int rows, int cols, float gain) {
    std::normal_distribution<float> normal(0.0f, gain / std::sqrt(static_cast<float>(cols)));
    std::vector<float> values(static_cast<size_t>(rows) * cols);
    for (float& value : values) value = normal(random_);
    if (shape_.type == DType::f32) {
      return store(DType::f32, rows, cols, values.data(), values.size() * sizeof(float));
    }
    std::vector<std::byte> blocks;  // Q8_0: f16 scale, 32 int8
    for (size_t at = 0; at < values.size(); at += 32) {
      float most = 0.0f;
      for (size_t i = at; i < at + 32; ++i) most = std::max(most, std::fabs(values[i]));
      const uint16_t scale = float_to_half(most / 127.0f);
      const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
      blocks.insert(blocks.end(), bytes, bytes + 2);
      for (size_t i = at; i < at + 32; ++i) {
        const float unit = half_to_float(scale);
        const float q = unit > 0.0f ? std::nearbyint(values[i] / unit) : 0.0f;
        blocks.push_back(static_cast<std::byte>(static_cast<int8_t>(q)));
      }
    }
    return store(DType::q8_0, rows, cols, blocks.data(), blocks.size());
  }

  TensorView store(DType type, int rows, int cols, const void* data, size_t bytes) {
    memory_.emplace_back(bytes);
    std::memcpy(memory_.back().data(), data, bytes);
    return {type, memory_.back().data(), rows, cols};
  }

  TinyShape shape_;
  std::mt19937 random_;
  ModelSource source_;
  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace coppice::test
