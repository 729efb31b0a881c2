// The architectures as data: how each differs from the plain transformer of llama, and what both
// readers of models (GGUF files, Hugging Face folders) make of it.
// Sources: Touvron et al. 2023 (llama), Yang et al. 2024 (qwen2), Qwen Team 2025 (qwen3), Gemma
// Team 2025 (gemma3).
//
//   const Architecture* arch = find_architecture("qwen2");   // null: unknown
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/model_source.h"

namespace coppice {

constexpr int64_t kMostLayers = 1024;
constexpr int64_t kMostWidth = 1 << 20;  // dim, ffn; heads times head_dim
constexpr int64_t kMostHeads = 1024;
constexpr int64_t kMostVocabulary = 1 << 24;
constexpr int64_t kMostContext = 1 << 27;
constexpr double kMostRotaryBase = 1e12;

struct Architecture {
  std::string_view name;                              // "general.architecture" of a GGUF file
  std::string_view model_type;                        // of a config.json
  RotaryStyle gguf_rotary = RotaryStyle::half_split;  // as GGUF files order Q and K
  Activation activation = Activation::silu;
  double rotary_base = 1e4;       // where the file names none
  bool rotary_factors = false;    // Llama 3: numbers that the frequencies are divided by
  bool qkv_bias = false;          // qwen2
  bool head_norms = false;        // qwen3, gemma3: RMS norm of each head's q and k
  bool block_norms = false;       // gemma3: a norm after each block as well
  bool scaled_embedding = false;  // gemma: embedding times sqrt(dim)
  bool windows = false;           // qwen2, qwen3: a config.json may give layers a window
  bool local_layers = false;      // gemma3: most layers see a window and have their own rotary base
  bool tied_output = false;       // gemma3: where a config.json does not say
  float norm_offset = 0.0f;       // gemma: a norm's weight is 1 + what safetensors hold
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // null: unknown

/// A layer's tensors in one format, without ".weight" and ".bias". Empty: the name is not used.
struct LayerNames {
  std::string_view attention_norm, q, k, v, q_norm, k_norm, attention_output, post_attention_norm;
  std::string_view ffn_norm, gate, up, down, post_ffn_norm;
};

/// Everything of a layer whose names begin with `prefix`. `tensors` gives and checks each:
/// matrix(name, outputs, inputs), norm(name, values) and bias(name, values).
template <class Tensors>
LayerTensors read_layer(Tensors& tensors, const Architecture& arch, const ModelConfig& config,
                        const LayerNames& names, const std::string& prefix) {
  const auto matrix = [&](std::string_view name, int64_t outputs, int64_t inputs) {
    return tensors.matrix(fmt::format("{}{}.weight", prefix, name), outputs, inputs);
  };
  const auto norm = [&](std::string_view name, int64_t values) {
    return tensors.norm(fmt::format("{}{}.weight", prefix, name), values);
  };
  const auto bias = [&](std::string_view name, int64_t values) {
    return tensors.bias(fmt::format("{}{}.bias", prefix, name), values);
  };
  const int64_t dim = config.dim;
  const int64_t ffn = config.ffn;
  const int64_t q = int64_t{config.heads} * config.head_dim;
  const int64_t kv = int64_t{config.kv_heads} * config.head_dim;
  LayerTensors out;
  out.attention_norm = norm(names.attention_norm, dim);
  out.q = matrix(names.q, q, dim);
  out.k = matrix(names.k, kv, dim);
  out.v = matrix(names.v, kv, dim);
  if (arch.qkv_bias) {
    out.q_bias = bias(names.q, q);
    out.k_bias = bias(names.k, kv);
    out.v_bias = bias(names.v, kv);
  }
  out.attention_output = matrix(names.attention_output, dim, q);
  out.ffn_norm = norm(names.ffn_norm, dim);
  out.gate = matrix(names.gate, ffn, dim);
  out.up = matrix(names.up, ffn, dim);
  out.down = matrix(names.down, dim, ffn);
  if (arch.head_norms) {
    out.q_norm = norm(names.q_norm, config.head_dim);
    out.k_norm = norm(names.k_norm, config.head_dim);
  }
  if (arch.block_norms) {
    out.post_attention_norm = norm(names.post_attention_norm, dim);
    out.post_ffn_norm = norm(names.post_ffn_norm, dim);
  }
  return out;
}

/// Gemma 3: `period - 1` layers that see a window, then one that sees all, each kind with its own
/// rotary table.
void alternate_layers(ModelConfig& config, int window, int period);

}  // namespace coppice
