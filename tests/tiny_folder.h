// The tiny models of tiny_gguf.h as Hugging Face folders: the same weights under the names, in the
// order of rows and with the keys that transformers gives them; and vocabularies as tokenizer.json.
//
//   TinyFolder folder = tiny_folder("qwen2", tiny_model("qwen2"), byte_vocabulary("qwen2"));
//   folder.config["sliding_window"] = 7;
//   folder.write(scratch.path());
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/safetensors.h"
#include "tests/tiny_gguf.h"
#include "tests/tiny_vocabulary.h"

namespace coppice::test {

struct TinyFolder {
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
    Bytes bytes;
  };

  nlohmann::json config, tokenizer, tokenizer_config, generation_config;  // null: no such file
  std::vector<Tensor> tensors;

  Tensor& tensor(const std::string& name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    return tensors.emplace_back(Tensor{name, "F32", {0}, {}});
  }

  void write_json(const std::filesystem::path& folder) const {
    const std::pair<const char*, const nlohmann::json*> files[] = {
        {"config.json", &config},
        {"tokenizer.json", &tokenizer},
        {"tokenizer_config.json", &tokenizer_config},
        {"generation_config.json", &generation_config}};
    for (const auto& [name, value] : files) {
      if (!value->is_null()) std::ofstream(folder / name) << *value;
    }
  }
  void write(const std::filesystem::path& folder) const {
    write_json(folder);
    write_weights(folder / "model.safetensors", 0, tensors.size());
  }
  /// Two shards and their index.
  void write_shards(const std::filesystem::path& folder) const {
    write_json(folder);
    const size_t half = tensors.size() / 2;
    const std::string shards[] = {"model-00001-of-00002.safetensors",
                                  "model-00002-of-00002.safetensors"};
    write_weights(folder / shards[0], 0, half);
    write_weights(folder / shards[1], half, tensors.size());
    nlohmann::json map;
    for (size_t i = 0; i < tensors.size(); ++i) map[tensors[i].name] = shards[i < half ? 0 : 1];
    std::ofstream(folder / "model.safetensors.index.json") << nlohmann::json{{"weight_map", map}};
  }

 private:
  void write_weights(const std::filesystem::path& path, size_t begin, size_t end) const {
    std::vector<SafeTensor> views;
    for (size_t i = begin; i < end; ++i) {
      views.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, tensors[i].bytes});
    }
    write_safetensors(path, views, {{"format", "pt"}});
  }
};

/// A tokenizer.json with the vocabulary's tokens and merges; `merges` may be written as pairs.
/// Merges by score become those of every way to cut a token in two, tokens of higher score first.
inline nlohmann::json tokenizer_json(const Vocabulary& vocabulary, bool as_pairs = false) {
  using nlohmann::json;
  const bool scores = vocabulary.kind == Vocabulary::Kind::score_merges;
  json vocab = json::object(), added = json::array(), merges = json::array();
  std::vector<std::pair<float, std::pair<std::string, std::string>>> cuts;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    const TokenType type = vocabulary.types[id];
    if (type == TokenType::normal || type == TokenType::byte) vocab[text] = id;
    if (type == TokenType::control || type == TokenType::user_defined) {
      added.push_back({{"id", id},
                       {"content", text},
                       {"special", type == TokenType::control},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false}});
    }
  }
  const auto add_merge = [&](const std::string& left, const std::string& right) {
    merges.push_back(as_pairs ? json{left, right} : json(left + " " + right));
  };
  for (size_t id = 0; scores && id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string left = text.substr(0, cut), right = text.substr(cut);
      if (vocabulary.types[id] == TokenType::normal && vocab.contains(left) &&
          vocab.contains(right)) {
        cuts.push_back({-vocabulary.scores[id], {left, right}});
      }
    }
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [score, cut] : cuts) add_merge(cut.first, cut.second);
  for (const std::string& merge : vocabulary.merges) {
    add_merge(merge.substr(0, merge.find(' ')), merge.substr(merge.find(' ') + 1));
  }

  const auto byte_level = [](bool splits) {
    return json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", splits}};
  };
  const auto sequence = [](const json& first, const json& second) {
    return json{{"type", "Sequence"}, {"pretokenizers", {first, second}}};
  };
  const auto split = [](const std::string& digits) {
    return json{{"type", "Split"},
                {"pattern",
                 {{"Regex", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits +
                                R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
                {"behavior", "Isolated"},
                {"invert", false}};
  };
  json pre;
  const std::string& name = vocabulary.pre_tokenizer;
  if (name == "gpt-2") pre = byte_level(true);
  if (name == "smollm") {
    pre = sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true));
  }
  if (name == "llama-bpe") pre = sequence(split(R"(\p{N}{1,3})"), byte_level(false));
  if (name == "qwen2") pre = sequence(split(R"(\p{N})"), byte_level(false));
  json normalizer, post;
  if (name == "qwen2") normalizer = {{"type", "NFC"}};
  if (scores) {
    normalizer = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
    pre = {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}};
  }
  if (vocabulary.add_bos) {
    const json bos = {{"SpecialToken", {{"id", vocabulary.tokens[vocabulary.bos]}}}};
    post = {{"type", "TemplateProcessing"}, {"single", {bos, {{"Sequence", {{"id", "A"}}}}}}};
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre},
          {"post_processor", post},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"byte_fallback", scores},
            {"ignore_merges", vocabulary.whole_pieces},
            {"vocab", vocab},
            {"merges", merges}}}};
}

/// Row r of llama's Q and K in a GGUF file, where the pairs that rotate stand side by side, from a
/// folder's, where they stand half a head apart.
inline int64_t halves_row(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

/// `image` holds tiny_model(architecture) with F32 weights.
inline TinyFolder tiny_folder(const std::string& architecture, const GgufImage& image,
                              const Vocabulary& vocabulary, const TinyFileShape& s = {}) {
  const bool gemma = architecture == "gemma3";
  const std::map<std::string, std::string> parts = {
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_output", "self_attn.o_proj"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"ffn_norm", gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"post_ffw_norm", "post_feedforward_layernorm"}};
  TinyFolder out;
  for (const GgufImage::Tensor& tensor : image.tensors) {
    const size_t dot = tensor.name.rfind('.');  // of ".weight", ".bias"
    std::string name = tensor.name.substr(0, dot), part;
    if (name == "token_embd") name = "model.embed_tokens";
    if (name == "output_norm") name = "model.norm";
    if (name == "output") name = "lm_head";
    if (name.starts_with("blk.")) {
      const size_t behind = name.find('.', 4);
      part = name.substr(behind + 1);
      name = "model.layers." + name.substr(4, behind - 3) + parts.at(part);
    }
    TinyFolder::Tensor copy{name + tensor.name.substr(dot), "F32", {}, tensor.data};
    copy.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    if (architecture == "llama" && (part == "attn_q" || part == "attn_k")) {
      const size_t row_bytes = tensor.shape[0] * sizeof(float);
      for (int64_t row = 0; row < copy.shape[0]; ++row) {
        std::memcpy(
            copy.bytes.data() + static_cast<size_t>(row) * row_bytes,
            tensor.data.data() + static_cast<size_t>(halves_row(row, s.head_dim)) * row_bytes,
            row_bytes);
      }
    }
    for (size_t i = 0; gemma && copy.shape.size() == 1 && i < copy.bytes.size(); i += 4) {
      float value = 0.0f;  // near 1, so that both the subtraction and the addition are exact
      std::memcpy(&value, copy.bytes.data() + i, 4);
      value -= 1.0f;
      std::memcpy(copy.bytes.data() + i, &value, 4);
    }
    out.tensors.push_back(std::move(copy));
  }
  out.config = {{"model_type", gemma ? "gemma3_text" : architecture},
                {"hidden_size", s.dim},
                {"intermediate_size", s.ffn},
                {"num_attention_heads", s.heads},
                {"num_key_value_heads", s.kv_heads},
                {"head_dim", s.head_dim},
                {"num_hidden_layers", s.layers},
                {"vocab_size", s.vocabulary},
                {"max_position_embeddings", s.context},
                {"rms_norm_eps", 1e-5},
                {"rope_theta", 1e4},
                {"tie_word_embeddings", true},
                {"torch_dtype", "float32"},
                {gemma ? "hidden_activation" : "hidden_act", gemma ? "gelu_pytorch_tanh" : "silu"}};
  if (gemma) {
    out.config["sliding_window"] = 8;
    out.config["query_pre_attn_scalar"] = s.head_dim;
  }
  out.tokenizer = tokenizer_json(vocabulary);
  out.tokenizer_config = {{"bos_token", vocabulary.tokens[vocabulary.bos]},
                          {"eos_token", vocabulary.tokens[vocabulary.eos]}};
  return out;
}

/// A vocabulary over bytes, as many tokens as the models below have rows.
inline Vocabulary folder_bytes() {
  return byte_vocabulary("gpt-2", {"h e"});
}

inline TinyFileShape folder_shape() {
  return {.vocabulary = static_cast<uint32_t>(folder_bytes().tokens.size())};
}

/// A GGUF image and a folder of one model; the keys that gemma3 leaves to defaults are spelled out,
/// each with a value of its own.
inline GgufImage image_of(const std::string& architecture) {
  GgufImage image = tiny_model(architecture, folder_shape());
  if (architecture == "gemma3") {
    image.key("gemma3.rope.freq_base", 1e6f).key("gemma3.rope.freq_base_swa", 5e3f);
    image.key("gemma3.attention.sliding_window_pattern", uint32_t{2});
  }
  return image;
}

inline TinyFolder folder_of(const std::string& architecture) {
  TinyFolder folder =
      tiny_folder(architecture, image_of(architecture), folder_bytes(), folder_shape());
  if (architecture == "gemma3") {
    folder.config["rope_theta"] = 1e6;
    folder.config["rope_local_base_freq"] = 5e3;
    folder.config["sliding_window_pattern"] = 2;
  }
  return folder;
}

}  // namespace coppice::test
