// A model as a GGUF file holds it, and the checks that the file holds one of the architectures that
// there are and nothing else. Source: the GGUF specification's key and tensor names.
//
//   GgufFile file("model.gguf");
//   ModelSource source = read_model(file);
#include "core/model_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "core/architecture.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr LayerNames kNames = {.attention_norm = "attn_norm",
                               .q = "attn_q",
                               .k = "attn_k",
                               .v = "attn_v",
                               .q_norm = "attn_q_norm",
                               .k_norm = "attn_k_norm",
                               .attention_output = "attn_output",
                               .post_attention_norm = "post_attention_norm",
                               .ffn_norm = "ffn_norm",
                               .gate = "ffn_gate",
                               .up = "ffn_up",
                               .down = "ffn_down",
                               .post_ffn_norm = "post_ffw_norm"};

/// Keys that change the mathematics unless they are absent or have this value.
struct NeutralKey {
  std::string_view suffix;
  double value;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.scale", 0},
    {"embedding_scale", 1},
    {"residual_scale", 1},
    {"logit_scale", 1},
    {"use_parallel_residual", 0},
    {"expert_count", 0},
    {"expert_used_count", 0},
    {"rope.dimension_sections", 0},
    {"rope.scale_linear", 1},
    {"rope.scaling.factor", 1},
    {"rope.scaling.attn_factor", 1},
};

/// The keys under the architecture's name.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  std::string name(std::string_view suffix) const {
    return fmt::format("{}.{}", architecture_, suffix);
  }
  bool has(std::string_view suffix) const { return file_.find(name(suffix)) != nullptr; }
  int integer(std::string_view suffix, int64_t low, int64_t high) const {
    return static_cast<int>(file_.integer(name(suffix), low, high));
  }
  int integer_or(std::string_view suffix, int64_t low, int64_t high, int64_t fallback) const {
    return static_cast<int>(file_.integer_or(name(suffix), low, high, fallback));
  }
  /// In (0, most].
  float positive(std::string_view suffix, double most, std::optional<double> fallback) const {
    const std::string key = name(suffix);
    const double value = fallback ? file_.real_or(key, *fallback) : file_.real(key);
    // Compared as the float it becomes: a tiny double would be 0 there.
    if (!(static_cast<float>(value) > 0.0f) || value > most) {
      throw Error("{}: key {} is {}; expected a number above 0, at most {}", file_.name(),
                  quote(key), value, most);
    }
    return static_cast<float>(value);
  }
  void refuse_unless_neutral(const NeutralKey& neutral) const {
    const std::string key = name(neutral.suffix);
    const GgufValue* value = file_.find(key);
    if (value == nullptr) return;
    const std::optional<double> number = as_number(*value);
    if (number == neutral.value) return;
    throw Error("{}: key {} is {}; its mathematics is not supported, only {} is", file_.name(),
                quote(key), number ? fmt::format("{}", *number) : "not a number", neutral.value);
  }

 private:
  static std::optional<double> as_number(const GgufValue& value) {
    if (const auto* u = std::get_if<uint64_t>(&value)) return static_cast<double>(*u);
    if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
    if (const auto* b = std::get_if<bool>(&value)) return *b ? 1.0 : 0.0;
    if (const auto* d = std::get_if<double>(&value)) return *d;
    return std::nullopt;
  }

  const GgufFile& file_;
  std::string_view architecture_;
};

/// The file's tensors, each taken once and checked against the shape that the config asks for.
class Tensors {
 public:
  explicit Tensors(const GgufFile& file) : file_(file) {}

  bool has(std::string_view name) const { return file_.find_tensor(name) != nullptr; }
  /// (outputs, inputs) of any type.
  TensorView matrix(const std::string& name, int64_t outputs, int64_t inputs) {
    return take(name, {inputs, outputs}).view;
  }
  TensorView norm(const std::string& name, int64_t values) { return vector(name, values); }
  TensorView bias(const std::string& name, int64_t values) { return vector(name, values); }
  /// (1, values) of f32.
  TensorView vector(const std::string& name, int64_t values) {
    const GgufTensor& tensor = take(name, {values});
    if (tensor.view.type != DType::f32) {
      throw Error("{}: tensor {} is {}; expected F32", file_.name(), quote(name),
                  traits(tensor.view.type).name);
    }
    return tensor.view;
  }
  /// A tensor that nobody asked for would be left out of the mathematics.
  void refuse_untaken(std::string_view architecture) const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!taken_.contains(&tensor)) {
        throw Error("{}: tensor {} is not one of architecture {}; the model is not supported",
                    file_.name(), quote(tensor.name), architecture);
      }
    }
  }

 private:
  const GgufTensor& take(const std::string& name, const std::vector<int64_t>& shape) {
    const GgufTensor& tensor = file_.tensor(name);
    if (tensor.shape != shape) {
      throw Error("{}: tensor {} has shape ({}); expected ({})", file_.name(), quote(name),
                  fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
    }
    taken_.insert(&tensor);
    return tensor;
  }

  const GgufFile& file_;
  std::unordered_set<const GgufTensor*> taken_;
};

const Architecture& architecture_of(const GgufFile& file) {
  if (file.integer_or("split.count", 0, 65535, 1) > 1) {
    throw Error("{}: the file is one part of a split model; merge the parts into one", file.name());
  }
  if (file.find("general.type") != nullptr && file.text("general.type") != "model") {
    throw Error("{}: key 'general.type' is {}; expected 'model'", file.name(),
                quote(file.text("general.type")));
  }
  const std::string& name = file.text("general.architecture");
  if (const Architecture* found = find_architecture(name)) return *found;
  throw Error("{}: architecture {} is not supported; expected llama, qwen2, qwen3 or gemma3",
              file.name(), quote(name));
}

/// Refuses what the forward pass does not compute; needs head_dim and context.
void refuse_other_mathematics(const GgufFile& file, const Keys& keys, const Architecture& arch,
                              const ModelConfig& config) {
  for (const NeutralKey& neutral : kNeutralKeys) keys.refuse_unless_neutral(neutral);
  const std::string scaling = keys.name("rope.scaling.type");
  if (file.find(scaling) != nullptr && file.text(scaling) != "none" &&
      file.text(scaling) != "linear") {  // linear by a factor of 1, checked above, is none
    throw Error("{}: key {} is {}; its mathematics is not supported, only 'none' is", file.name(),
                quote(scaling), quote(file.text(scaling)));
  }
  for (const char* length : {"attention.key_length", "attention.value_length",
                             "rope.dimension_count", "rope.dimension_count_swa"}) {
    if (keys.has(length)) keys.integer(length, config.head_dim, config.head_dim);
  }
  if (!arch.local_layers && keys.has("attention.sliding_window")) {
    const int window = keys.integer("attention.sliding_window", 0, kMostContext);
    if (window > 0 && window < config.context) {
      throw Error("{}: key {} is {}; a sliding window is not supported for {}", file.name(),
                  quote(keys.name("attention.sliding_window")), window, arch.name);
    }
  }
}

int64_t read_vocabulary_size(const GgufFile& file) {
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  const int64_t rows = embedding.view.rows;
  if (rows > kMostVocabulary) {
    throw Error("{}: tensor 'token_embd.weight' has {} rows; expected at most {}", file.name(),
                rows, kMostVocabulary);
  }
  // Rows beyond the tokenizer's are padding; tokens beyond the rows could not be embedded.
  if (file.find("tokenizer.ggml.tokens") != nullptr) {
    const size_t tokens = file.texts("tokenizer.ggml.tokens").size();
    if (std::cmp_greater(tokens, rows)) {
      throw Error(
          "{}: key 'tokenizer.ggml.tokens' has {} tokens; expected at most {}, the rows of "
          "tensor 'token_embd.weight'",
          file.name(), tokens, rows);
    }
  }
  return rows;
}

std::string read_name(const GgufFile& file) {
  if (file.find("general.name") != nullptr) return file.text("general.name");
  return std::filesystem::path(file.name()).stem().string();
}

/// Gemma 3's. Files of 2025 name neither the period nor the local base.
void read_local_layers(const Keys& keys, ModelConfig& config) {
  const int window = keys.integer("attention.sliding_window", 1, kMostContext);
  const int period = keys.integer_or("attention.sliding_window_pattern", 1, kMostLayers, 6);
  config.rotary_bases.push_back(keys.positive("rope.freq_base_swa", kMostRotaryBase, 1e4));
  alternate_layers(config, window, period);
}

ModelConfig read_config(const GgufFile& file, const Architecture& arch) {
  const Keys keys(file, arch.name);
  ModelConfig config;
  config.architecture = arch.name;
  config.name = read_name(file);
  config.dim = keys.integer("embedding_length", 1, kMostWidth);
  config.ffn = keys.integer("feed_forward_length", 1, kMostWidth);
  config.heads = keys.integer("attention.head_count", 1, kMostHeads);
  config.kv_heads = keys.integer_or("attention.head_count_kv", 1, config.heads, config.heads);
  if (config.heads % config.kv_heads != 0) {
    throw Error("{}: key {} is {}; expected a divisor of {}, the head count", file.name(),
                quote(keys.name("attention.head_count_kv")), config.kv_heads, config.heads);
  }
  config.head_dim = keys.integer_or("attention.key_length", 2, kMostWidth / config.heads,
                                    config.dim / config.heads);
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    throw Error("{}: heads have {} values; expected an even number, 2 or more, in key {}",
                file.name(), config.head_dim, quote(keys.name("attention.key_length")));
  }
  config.vocabulary = static_cast<int>(read_vocabulary_size(file));
  config.context = keys.integer("context_length", 1, kMostContext);
  config.norm_eps = keys.positive("attention.layer_norm_rms_epsilon", 1.0, std::nullopt);
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (arch.scaled_embedding) config.embedding_scale = std::sqrt(static_cast<float>(config.dim));
  config.activation = arch.activation;
  config.rotary = arch.gguf_rotary;
  config.rotary_bases = {keys.positive("rope.freq_base", kMostRotaryBase, arch.rotary_base)};
  config.layers.resize(keys.integer("block_count", 1, kMostLayers));
  if (arch.local_layers) read_local_layers(keys, config);
  refuse_other_mathematics(file, keys, arch, config);
  return config;
}

void refuse_bad_factors(const GgufFile& file, const TensorView& factors) {
  for (int64_t i = 0; i < factors.cols; ++i) {
    float factor = 0.0f;
    std::memcpy(&factor, factors.data + i * sizeof(float), sizeof(float));
    if (!(factor > 0.0f) || !std::isfinite(factor)) {
      throw Error("{}: tensor 'rope_freqs.weight' holds {}; expected finite numbers above 0",
                  file.name(), factor);
    }
  }
}

}  // namespace

ModelSource read_model(const GgufFile& file) {
  const Architecture& arch = architecture_of(file);
  ModelSource source;
  source.name = file.name();
  source.config = read_config(file, arch);
  const ModelConfig& config = source.config;

  Tensors tensors(file);
  source.embedding = tensors.matrix("token_embd.weight", config.vocabulary, config.dim);
  source.output_norm = tensors.vector("output_norm.weight", config.dim);
  source.output = tensors.has("output.weight")
                      ? tensors.matrix("output.weight", config.vocabulary, config.dim)
                      : source.embedding;
  if (arch.rotary_factors && tensors.has("rope_freqs.weight")) {
    source.rotary_factors = tensors.vector("rope_freqs.weight", config.head_dim / 2);
    refuse_bad_factors(file, source.rotary_factors);
  }
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    source.layers.push_back(
        read_layer(tensors, arch, config, kNames, fmt::format("blk.{}.", layer)));
  }
  tensors.refuse_untaken(arch.name);
  return source;
}

}  // namespace coppice
