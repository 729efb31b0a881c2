// See folder_config.h.
#include "core/folder_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;

/// Throws Error: what the key asks for is not computed here.
[[noreturn]] void not_supported(const JsonObject& object, std::string_view key,
                                std::string_view remedy) {
  throw Error("{}: key {} is {}; its mathematics is not supported, {}", object.file(),
              object.name(key), shown(*object.find(key)), remedy);
}

void refuse_unless(const JsonObject& object, std::string_view key, const json& neutral) {
  const json* value = object.find(key);
  if (value == nullptr || *value == neutral) return;
  not_supported(object, key, fmt::format("only {} is", shown(neutral)));
}

const Architecture& architecture_of(const JsonObject& config) {
  const std::string type = config.text("model_type");
  std::vector<std::string_view> known;
  for (const Architecture& architecture : architectures()) {
    if (architecture.model_type == type) return architecture;
    known.push_back(architecture.model_type);
  }
  throw Error("{}: key 'model_type' is {}; supported are {}", config.file(), quote(type),
              fmt::join(known, ", "));
}

void refuse_other_mathematics(const JsonObject& config, const Architecture& arch) {
  if (config.has("quantization_config")) {
    throw Error(
        "{}: key 'quantization_config' asks for quantised weights, which are not read; take the "
        "model's F16 or BF16 folder, or a GGUF file",
        config.file());
  }
  refuse_unless(config, arch.local_layers ? "hidden_activation" : "hidden_act",
                arch.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh");
  if (!arch.qkv_bias) refuse_unless(config, "attention_bias", false);
  refuse_unless(config, "mlp_bias", false);
  refuse_unless(config, "use_bidirectional_attention", false);
  refuse_unless(config, "partial_rotary_factor", 1.0);
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (config.has(cap)) not_supported(config, cap, "only null is");
  }
}

/// Llama 3.1's: long waves are stretched by the factor, short ones stay, between them it blends.
std::vector<float> llama3_factors(const JsonObject& rope, float base, int head_dim) {
  const double factor = rope.positive("factor", 1e6, std::nullopt);
  const double low = rope.positive("low_freq_factor", 1e6, std::nullopt);
  const double high = rope.positive("high_freq_factor", 1e6, std::nullopt);
  const int context = rope.integer("original_max_position_embeddings", 1, kMostContext);
  if (high <= low) rope.refuse("high_freq_factor", "more than low_freq_factor");
  std::vector<float> factors;
  for (int i = 0; i < head_dim / 2; ++i) {
    const double wave = 2.0 * std::numbers::pi * std::pow(base, 2.0 * i / head_dim);
    const double stays = std::clamp((context / wave - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - stays) / factor + stays)));
  }
  return factors;
}

/// Reads what one rotary table is scaled by; empty: by nothing.
std::vector<float> read_scaling(const JsonObject& rope, const Architecture& arch, float base,
                                int head_dim) {
  refuse_unless(rope, "partial_rotary_factor", 1.0);
  const char* key = rope.has("rope_type") ? "rope_type" : "type";  // older files: "type"
  const std::string type = rope.text_or(key, "default");
  if (type == "default") return {};
  if (type == "llama3" && arch.rotary_factors) return llama3_factors(rope, base, head_dim);
  not_supported(rope, key,
                arch.rotary_factors ? "only 'default' and 'llama3' are" : "only 'default' is");
}

/// transformers 5 holds base and scaling in rope_parameters, for gemma3 one such object for each
/// kind of layer; transformers 4 in keys of the config itself.
void read_rotary(const JsonObject& config, const Architecture& arch, FolderConfig& out) {
  ModelConfig& model = out.model;
  const auto add_table = [&](const JsonObject& holder, std::string_view key, double fallback) {
    model.rotary_bases.push_back(
        static_cast<float>(holder.positive(key, kMostRotaryBase, fallback)));
  };
  const auto scale = [&](const std::optional<JsonObject>& rope) {
    if (rope) out.rotary_factors = read_scaling(*rope, arch, model.rotary_bases[0], model.head_dim);
  };
  constexpr double kLocalBase = 1e4;
  const std::optional<JsonObject> parameters = config.object("rope_parameters");
  if (parameters && arch.local_layers) {
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      const std::optional<JsonObject> rope = parameters->object(kind);
      if (!rope) parameters->refuse(kind, "an object with rope_theta");
      add_table(*rope, "rope_theta", arch.rotary_base);
      scale(rope);
    }
    return;
  }
  if (parameters && parameters->has("rope_theta")) {
    add_table(*parameters, "rope_theta", arch.rotary_base);
  } else {
    add_table(config, "rope_theta", arch.rotary_base);
  }
  if (arch.local_layers) add_table(config, "rope_local_base_freq", kLocalBase);
  scale(parameters);
  scale(config.object("rope_scaling"));
}

/// Which layers see a window, as `layer_types` lists them; empty: the key is absent.
std::vector<bool> listed_windows(const JsonObject& config, size_t layers) {
  std::vector<bool> sees;
  const json* types = config.array("layer_types");
  if (types == nullptr) return sees;
  for (const json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      throw Error(
          "{}: key 'layer_types' holds {}; its mathematics is not supported, only "
          "'full_attention' and 'sliding_attention' are",
          config.file(), shown(type));
    }
    sees.push_back(type == "sliding_attention");
  }
  if (sees.size() != layers) {
    throw Error("{}: key 'layer_types' has {} entries; expected {}, as num_hidden_layers says",
                config.file(), sees.size(), layers);
  }
  return sees;
}

void read_windows(const JsonObject& config, const Architecture& arch, ModelConfig& model) {
  const std::vector<bool> listed = listed_windows(config, model.layers.size());
  const bool any_listed = std::find(listed.begin(), listed.end(), true) != listed.end();
  if (arch.local_layers) {
    const int window = config.integer("sliding_window", 1, kMostContext);
    const char* period_key =
        config.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    if (listed.empty()) {
      alternate_layers(model, window, config.integer_or(period_key, 1, kMostLayers, 6));
    }
    for (size_t l = 0; l < listed.size(); ++l) {
      if (listed[l]) model.layers[l] = {.window = window, .rotary_table = 1};
    }
    return;
  }
  const bool on =
      config.boolean_or("use_sliding_window", !arch.windows && config.has("sliding_window"));
  if (!arch.windows && (on || any_listed)) {
    throw Error(
        "{}: a sliding window (keys 'sliding_window', 'layer_types') is not supported for {}",
        config.file(), arch.name);
  }
  if (!on) return;
  const int window = config.integer("sliding_window", 1, kMostContext);
  const int full = config.integer_or("max_window_layers", 0, kMostLayers, 28);
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const bool sees = listed.empty() ? static_cast<int>(l) >= full : listed[l];
    if (sees) model.layers[l].window = window;
  }
}

}  // namespace

FolderConfig read_folder_config(const JsonObject& config) {
  FolderConfig out;
  out.architecture = &architecture_of(config);
  const Architecture& arch = *out.architecture;
  refuse_other_mathematics(config, arch);
  ModelConfig& model = out.model;
  model.architecture = arch.name;
  model.dim = config.integer("hidden_size", 1, kMostWidth);
  model.ffn = config.integer("intermediate_size", 1, kMostWidth);
  model.heads = config.integer("num_attention_heads", 1, kMostHeads);
  model.kv_heads = config.integer_or("num_key_value_heads", 1, model.heads, model.heads);
  if (model.heads % model.kv_heads != 0) {
    config.refuse("num_key_value_heads", fmt::format("a divisor of {}", model.heads));
  }
  // The classes of qwen3 and gemma3 have a width of their own where the file names none.
  model.head_dim = arch.head_norms || config.has("head_dim")
                       ? config.integer("head_dim", 2, kMostWidth / model.heads)
                       : model.dim / model.heads;
  if (model.head_dim < 2 || model.head_dim % 2 != 0) {
    throw Error("{}: heads have {} values; expected an even number, 2 or more, in key 'head_dim'",
                config.file(), model.head_dim);
  }
  model.vocabulary = config.integer("vocab_size", 1, kMostVocabulary);
  model.context = config.integer("max_position_embeddings", 1, kMostContext);
  model.norm_eps = static_cast<float>(config.positive("rms_norm_eps", 1.0, std::nullopt));
  const double scaled_by =
      arch.local_layers ? config.positive("query_pre_attn_scalar", 1e6, 256.0) : model.head_dim;
  model.attention_scale = 1.0f / std::sqrt(static_cast<float>(scaled_by));
  if (arch.scaled_embedding) model.embedding_scale = std::sqrt(static_cast<float>(model.dim));
  model.activation = arch.activation;
  model.rotary = RotaryStyle::half_split;
  model.layers.resize(static_cast<size_t>(config.integer("num_hidden_layers", 1, kMostLayers)));
  read_windows(config, arch, model);
  read_rotary(config, arch, out);
  out.tied = config.boolean_or("tie_word_embeddings", arch.tied_output);
  return out;
}

}  // namespace coppice
