// Small models of each architecture as GGUF images with seeded F32 weights, for tests that need a
// model and no download, or a model with one thing wrong.
//
//   Bytes bytes = tiny_model("qwen2").without_tensor("blk.1.attn_q.bias").bytes();
//   GgufFile file("tiny.gguf", bytes);
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/gguf_writer.h"

namespace coppice::test {

struct TinyFileShape {
  uint32_t dim = 64;
  uint32_t ffn = 96;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t layers = 2;
  uint32_t vocabulary = 40;
  uint32_t context = 128;
};

/// A tensor with normal values of mean `mean` and the deviation given.
inline void add_random(GgufImage& image, std::mt19937& random, const std::string& name,
                       const std::vector<uint64_t>& shape, float mean, float deviation) {
  std::normal_distribution<float> normal(mean, deviation);
  image.tensor(name, DType::f32, shape);
  Bytes& data = image.tensors.back().data;
  for (size_t i = 0; i < data.size(); i += sizeof(float)) {
    const float value = normal(random);
    std::memcpy(data.data() + i, &value, sizeof value);
  }
}

/// "llama", "qwen2", "qwen3" or "gemma3"; the output layer is tied. Has no tokenizer keys.
inline GgufImage tiny_model(const std::string& architecture, const TinyFileShape& s = {},
                            uint32_t seed = 1) {
  GgufImage image;
  const auto key = [&](const std::string& name) { return architecture + "." + name; };
  image.key("general.architecture", architecture).key("general.name", "Tiny " + architecture);
  image.key(key("embedding_length"), s.dim).key(key("feed_forward_length"), s.ffn);
  image.key(key("attention.head_count"), s.heads).key(key("attention.head_count_kv"), s.kv_heads);
  image.key(key("attention.key_length"), s.head_dim);
  image.key(key("attention.value_length"), s.head_dim);
  image.key(key("block_count"), s.layers).key(key("context_length"), s.context);
  image.key(key("attention.layer_norm_rms_epsilon"), 1e-5f).key(key("rope.freq_base"), 1e4f);
  if (architecture == "gemma3") image.key(key("attention.sliding_window"), uint32_t{8});

  std::mt19937 random(seed);
  const auto matrix = [&](const std::string& name, uint32_t outputs, uint32_t inputs) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(inputs));
    add_random(image, random, name, {inputs, outputs}, 0.0f, deviation);
  };
  const auto norm = [&](const std::string& name, uint32_t values) {
    add_random(image, random, name, {values}, 1.0f, 0.1f);
  };
  matrix("token_embd.weight", s.vocabulary, s.dim);
  norm("output_norm.weight", s.dim);
  const uint32_t q = s.heads * s.head_dim;
  const uint32_t kv = s.kv_heads * s.head_dim;
  for (uint32_t layer = 0; layer < s.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    norm(blk + "attn_norm.weight", s.dim);
    matrix(blk + "attn_q.weight", q, s.dim);
    matrix(blk + "attn_k.weight", kv, s.dim);
    matrix(blk + "attn_v.weight", kv, s.dim);
    matrix(blk + "attn_output.weight", s.dim, q);
    norm(blk + "ffn_norm.weight", s.dim);
    matrix(blk + "ffn_gate.weight", s.ffn, s.dim);
    matrix(blk + "ffn_up.weight", s.ffn, s.dim);
    matrix(blk + "ffn_down.weight", s.dim, s.ffn);
    if (architecture == "qwen2") {
      add_random(image, random, blk + "attn_q.bias", {q}, 0.0f, 0.1f);
      add_random(image, random, blk + "attn_k.bias", {kv}, 0.0f, 0.1f);
      add_random(image, random, blk + "attn_v.bias", {kv}, 0.0f, 0.1f);
    }
    if (architecture == "gemma3" || architecture == "qwen3") {
      norm(blk + "attn_q_norm.weight", s.head_dim);
      norm(blk + "attn_k_norm.weight", s.head_dim);
    }
    if (architecture == "gemma3") {
      norm(blk + "post_attention_norm.weight", s.dim);
      norm(blk + "post_ffw_norm.weight", s.dim);
    }
  }
  return image;
}

}  // namespace coppice::test
