// See model_folder.h. Tensor names as the model classes of transformers give them.
#include "core/model_folder.h"

#include <algorithm>
#include <optional>

#include "core/architecture.h"
#include "core/folder_config.h"
#include "core/folder_vocabulary.h"
#include "core/folder_weights.h"
#include "core/json_object.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr LayerNames kNames = {.attention_norm = "input_layernorm",
                               .q = "self_attn.q_proj",
                               .k = "self_attn.k_proj",
                               .v = "self_attn.v_proj",
                               .q_norm = "self_attn.q_norm",
                               .k_norm = "self_attn.k_norm",
                               .attention_output = "self_attn.o_proj",
                               .ffn_norm = "post_attention_layernorm",
                               .gate = "mlp.gate_proj",
                               .up = "mlp.up_proj",
                               .down = "mlp.down_proj"};

/// With a norm behind each block the names move: "post_attention_layernorm" is then what it says.
LayerNames names_of(const Architecture& arch) {
  LayerNames names = kNames;
  if (!arch.block_norms) return names;
  names.post_attention_norm = "post_attention_layernorm";
  names.ffn_norm = "pre_feedforward_layernorm";
  names.post_ffn_norm = "post_feedforward_layernorm";
  return names;
}

}  // namespace

struct ModelFolder::State {
  explicit State(fs::path given)
      : folder(std::move(given)),
        file(JsonObject::read(folder / "config.json",
                              "the config of a Hugging Face model, beside model.safetensors and "
                              "tokenizer.json; or give a GGUF file")),
        config(read_folder_config(file)) {
    config.model.name = fs::absolute(folder).lexically_normal().filename().string();
  }

  fs::path folder;
  JsonObject file;
  FolderConfig config;
  std::optional<FolderWeights> weights;
};

fs::path ModelFolder::find(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path.has_filename() ? path : path.parent_path();
  const bool weights = path.extension() == ".safetensors";
  const bool described = path.filename() == "config.json" ||
                         path.filename().string().ends_with(".safetensors.index.json");
  if (!weights && !described) return {};
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!weights) return folder;
  if (!fs::exists(folder / "config.json", error)) {
    throw Error(
        "{}: no config.json stands beside it; a model is a folder with config.json, "
        "model.safetensors and tokenizer.json, or a GGUF file",
        path.string());
  }
  const std::vector<fs::path> files = weight_files(folder);
  const auto same = [&](const fs::path& file) { return file.filename() == path.filename(); };
  if (std::none_of(files.begin(), files.end(), same)) {
    throw Error("{}: is not one of the files that hold the weights of {}; give the folder",
                path.string(), folder.string());
  }
  return folder;
}

ModelFolder::ModelFolder(fs::path folder) : state_(std::make_unique<State>(std::move(folder))) {}
ModelFolder::ModelFolder(ModelFolder&&) noexcept = default;
ModelFolder::~ModelFolder() = default;

ModelSource ModelFolder::source() {
  const FolderConfig& config = state_->config;
  const Architecture& arch = *config.architecture;
  FolderWeights& weights = state_->weights.emplace(state_->folder, arch.norm_offset);
  ModelSource source;
  source.name = state_->folder.string();
  source.config = config.model;
  const int rows = config.model.vocabulary, dim = config.model.dim;
  source.embedding = weights.matrix("model.embed_tokens.weight", rows, dim);
  source.output_norm = weights.norm("model.norm.weight", dim);
  constexpr const char* kOutput = "lm_head.weight";
  source.output = config.tied ? source.embedding : weights.matrix(kOutput, rows, dim);
  if (config.tied) weights.pass_over(kOutput);  // some files hold the embedding twice
  if (!config.rotary_factors.empty()) {
    source.rotary_factors = {DType::f32,
                             reinterpret_cast<const std::byte*>(config.rotary_factors.data()), 1,
                             static_cast<int64_t>(config.rotary_factors.size())};
  }
  const LayerNames names = names_of(arch);
  for (size_t layer = 0; layer < config.model.layers.size(); ++layer) {
    source.layers.push_back(
        read_layer(weights, arch, config.model, names, fmt::format("model.layers.{}.", layer)));
  }
  weights.refuse_untaken(arch.name);
  return source;
}

Vocabulary ModelFolder::vocabulary() const {
  return read_folder_vocabulary(state_->folder, state_->file);
}

std::vector<fs::path> ModelFolder::files() const {
  std::vector<fs::path> files;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    std::error_code error;
    if (fs::exists(state_->folder / name, error)) files.push_back(state_->folder / name);
  }
  const std::vector<fs::path> weights = weight_files(state_->folder);
  files.insert(files.end(), weights.begin(), weights.end());
  return files;
}

}  // namespace coppice
