// A small model distilled from the target, as `coppice train draft` writes it: some layers of the
// target's shape and an output layer for its most frequent tokens. The token embedding is the
// target's own and stands in no file twice. Sources: Hinton 2015, "Distilling the Knowledge in a
// Neural Network"; Zhou 2024, "DistillSpec"; Zhao 2025, "FR-Spec" (frequent tokens).
//
//   std::unique_ptr<Model> draft = load_distilled("smollm2.draft.safetensors", target, *backend);
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "core/model.h"
#include "decoding/draft_head.h"

namespace coppice {

/// A tensor of a layer, and what follows "blk.N." in its name: the file's names, the order of Q's
/// and K's rows and their rotation are those of the target's GGUF file.
enum class Extent { one, dim, ffn, q, kv, head };
struct LayerPart {
  std::string_view name;
  TensorView LayerTensors::*view;
  Extent rows, cols;
  bool optional = false;  // some architectures lack it
};
inline constexpr LayerPart kLayerParts[] = {
    {"attn_norm.weight", &LayerTensors::attention_norm, Extent::one, Extent::dim},
    {"attn_q.weight", &LayerTensors::q, Extent::q, Extent::dim},
    {"attn_k.weight", &LayerTensors::k, Extent::kv, Extent::dim},
    {"attn_v.weight", &LayerTensors::v, Extent::kv, Extent::dim},
    {"attn_q.bias", &LayerTensors::q_bias, Extent::one, Extent::q, true},
    {"attn_k.bias", &LayerTensors::k_bias, Extent::one, Extent::kv, true},
    {"attn_v.bias", &LayerTensors::v_bias, Extent::one, Extent::kv, true},
    {"attn_q_norm.weight", &LayerTensors::q_norm, Extent::one, Extent::head, true},
    {"attn_k_norm.weight", &LayerTensors::k_norm, Extent::one, Extent::head, true},
    {"attn_output.weight", &LayerTensors::attention_output, Extent::dim, Extent::q},
    {"post_attention_norm.weight", &LayerTensors::post_attention_norm, Extent::one, Extent::dim,
     true},
    {"ffn_norm.weight", &LayerTensors::ffn_norm, Extent::one, Extent::dim},
    {"ffn_gate.weight", &LayerTensors::gate, Extent::ffn, Extent::dim},
    {"ffn_up.weight", &LayerTensors::up, Extent::ffn, Extent::dim},
    {"ffn_down.weight", &LayerTensors::down, Extent::dim, Extent::ffn},
    {"post_ffw_norm.weight", &LayerTensors::post_ffn_norm, Extent::one, Extent::dim, true},
};

/// The shape of the draft: the target's, with the head's layers and output rows.
ModelConfig distilled_config(const ModelConfig& target, const HeadConfig& head);

/// Whether the file is one that `coppice train` wrote, for a target that is at hand.
bool holds_head(const std::filesystem::path& path);

/// `backend` is the target's, whose embedding is shared. Throws Error as DraftHead does, and for
/// tensors that are missing, left over or of other shapes.
std::unique_ptr<Model> load_distilled(const std::filesystem::path& path, const Model& target,
                                      Backend& backend);

}  // namespace coppice
