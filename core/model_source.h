// What a model is before a backend packs it: its shape and its tensors, whichever file they came
// from. A tensor that the architecture does not have has data == nullptr.
//
//   GgufFile file(path);
//   ModelSource source = read_model(file);   // views into `file`, which must outlive packing
//   Model model(source, *backend);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/gguf.h"
#include "kernels/backend.h"

namespace coppice {

struct LayerKind {
  int window = 0;        // 0: attends to all; n: to keys with position difference < n
  int rotary_table = 0;  // index into ModelConfig::rotary_bases
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3", "gemma3"
  std::string name;
  int dim = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;               // rows of the output layer; the tokenizer may have fewer
  std::vector<int32_t> output_ids;  // token of each of these rows, ascending; empty: all in order
  int context = 0;                  // positions the model was trained for
  float norm_eps = 0.0f;
  float attention_scale = 0.0f;
  float embedding_scale = 1.0f;
  Activation activation = Activation::silu;
  RotaryStyle rotary = RotaryStyle::adjacent;
  std::vector<float> rotary_bases;  // one table each
  std::vector<LayerKind> layers;
};

struct LayerTensors {
  TensorView attention_norm;          // (1, dim) f32
  TensorView q, k, v;                 // (heads head_dim, dim), (kv_heads head_dim, dim) twice
  TensorView q_bias, k_bias, v_bias;  // (1, outputs): qwen2
  TensorView q_norm, k_norm;          // (1, head_dim): qwen3, gemma3
  TensorView attention_output;        // (dim, heads head_dim)
  TensorView post_attention_norm;     // (1, dim): gemma3
  TensorView ffn_norm;                // (1, dim)
  TensorView gate, up;                // (ffn, dim)
  TensorView down;                    // (dim, ffn)
  TensorView post_ffn_norm;           // (1, dim): gemma3
};

struct ModelSource {
  std::string name;  // file, for messages
  ModelConfig config;
  TensorView embedding;                            // (vocabulary, dim)
  std::shared_ptr<const Weight> packed_embedding;  // in its place: another model's
  TensorView output_norm;
  TensorView output;          // (vocabulary, dim); the embedding again when tied
  TensorView rotary_factors;  // (1, head_dim/2) f32 that frequencies are divided by: Llama 3
  std::vector<LayerTensors> layers;
};

/// Throws Error naming the file and the key or tensor that is missing, of another shape or type,
/// or that asks for mathematics this project does not have (rope scaling, soft caps).
ModelSource read_model(const GgufFile& file);

}  // namespace coppice
