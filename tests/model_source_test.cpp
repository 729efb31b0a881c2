// Model configs and tensors from GGUF files: the real models have the shapes their papers give, and
// a file that asks for other mathematics, or lacks a tensor, is refused by the name at fault.
#include "core/model_source.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "kernels/base/error.h"
#include "tests/test_files.h"
#include "tests/tiny_gguf.h"

namespace coppice {
namespace {

using test::Bytes;
using test::GgufImage;
using test::tiny_model;
using testing::ElementsAre;
using testing::HasSubstr;

/// The config of an image; views of its source would dangle, so they stay here.
ModelConfig config_of(const GgufImage& image) {
  const Bytes bytes = image.bytes();
  return read_model(GgufFile("tiny.gguf", bytes)).config;
}

std::string refusal(const GgufImage& image) {
  try {
    config_of(image);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, testing::StartsWith("tiny.gguf: "));
    return message;
  }
  return "the model was accepted";
}

class EachArchitecture : public testing::TestWithParam<const char*> {
 protected:
  std::string key(const std::string& suffix) const {
    return std::string(GetParam()) + "." + suffix;
  }
  GgufImage image_ = tiny_model(GetParam());
};
INSTANTIATE_TEST_SUITE_P(ModelSource, EachArchitecture,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST_P(EachArchitecture, IsRead) {
  const Bytes bytes = image_.bytes();
  const GgufFile file("tiny.gguf", bytes);
  const ModelSource source = read_model(file);
  const ModelConfig& config = source.config;
  EXPECT_EQ(config.architecture, GetParam());
  EXPECT_EQ(config.name, std::string("Tiny ") + GetParam());
  EXPECT_EQ(config.dim, 64);
  EXPECT_EQ(config.ffn, 96);
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.vocabulary, 40);
  EXPECT_EQ(config.context, 128);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_EQ(config.attention_scale, 0.25f);
  EXPECT_EQ(config.rotary_bases[0], 1e4f);
  EXPECT_EQ(config.layers.size(), 2u);
  EXPECT_EQ(source.output.data, source.embedding.data);  // tied
  EXPECT_EQ(source.embedding.rows, 40);
  EXPECT_EQ(source.rotary_factors.data, nullptr);
  const LayerTensors& layer = source.layers[1];
  EXPECT_EQ(layer.q.rows, 64);
  EXPECT_EQ(layer.k.rows, 32);
  EXPECT_EQ(layer.down.cols, 96);
  EXPECT_EQ(layer.q.data, file.tensor("blk.1.attn_q.weight").view.data);
  const std::string arch = GetParam();
  EXPECT_EQ(layer.q_bias.data != nullptr, arch == "qwen2");
  EXPECT_EQ(layer.v_bias.cols, arch == "qwen2" ? 32 : 0);
  EXPECT_EQ(layer.k_norm.cols, arch == "gemma3" || arch == "qwen3" ? 16 : 0);
  EXPECT_EQ(layer.post_ffn_norm.cols, arch == "gemma3" ? 64 : 0);
  EXPECT_EQ(config.rotary, arch == "llama" ? RotaryStyle::adjacent : RotaryStyle::half_split);
  EXPECT_EQ(config.activation, arch == "gemma3" ? Activation::gelu_tanh : Activation::silu);
  EXPECT_EQ(config.embedding_scale, arch == "gemma3" ? 8.0f : 1.0f);
}

TEST_P(EachArchitecture, SeparateOutputIsUsed) {
  image_.tensor("output.weight", DType::q8_0, {64, 40});
  const Bytes bytes = image_.bytes();
  const GgufFile file("tiny.gguf", bytes);
  EXPECT_EQ(read_model(file).output.type, DType::q8_0);
  image_.tensors.back().shape = {64, 39};
  EXPECT_THAT(refusal(image_), HasSubstr("'output.weight' has shape (64, 39); expected (64, 40)"));
}

TEST_P(EachArchitecture, EveryTensorIsNeededInItsShape) {
  for (size_t i = 0; i < image_.tensors.size(); ++i) {
    const std::string name = image_.tensors[i].name;
    GgufImage image = image_;
    image.without_tensor(name);
    EXPECT_THAT(refusal(image), HasSubstr("tensor '" + name + "' is missing"));
    if (name == "token_embd.weight") continue;  // its rows are the vocabulary
    image = image_;
    std::vector<uint64_t>& shape = image.tensors[i].shape;
    --shape.back();
    EXPECT_THAT(refusal(image), HasSubstr("tensor '" + name + "' has shape"));
    ++shape.back();
    shape.push_back(1);
    EXPECT_THAT(refusal(image), HasSubstr("tensor '" + name + "' has shape"));
  }
}

TEST_P(EachArchitecture, VectorsAreF32) {
  for (GgufImage::Tensor& tensor : image_.tensors) {
    if (tensor.shape.size() != 1) continue;
    const uint32_t type = tensor.type;
    tensor.type = static_cast<uint32_t>(DType::f16);
    EXPECT_THAT(refusal(image_), HasSubstr("tensor '" + tensor.name + "' is F16; expected F32"));
    tensor.type = type;
  }
}

TEST_P(EachArchitecture, TensorsNobodyAsksForAreRefused) {
  for (const char* name : {"blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.2.attn_q.weight",
                           "rope_factors_long.weight", "blk.0.ffn_gate_inp.weight"}) {
    GgufImage image = image_;
    image.tensor(name, DType::f32, {64});
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("tensor '{}' is not one of", name)));
  }
}

TEST_P(EachArchitecture, NeededKeysAreNamed) {
  for (const char* suffix : {"embedding_length", "feed_forward_length", "attention.head_count",
                             "block_count", "context_length", "attention.layer_norm_rms_epsilon"}) {
    GgufImage image = image_;
    image.without_key(key(suffix));
    EXPECT_THAT(refusal(image), HasSubstr("key '" + key(suffix) + "' is missing"));
    image.key(key(suffix), "text");
    EXPECT_THAT(refusal(image), HasSubstr("key '" + key(suffix) + "' is a text"));
    image.key(key(suffix), int32_t{-1});
    EXPECT_THAT(refusal(image), HasSubstr("key '" + key(suffix) + "' is"));
    image.key(key(suffix), uint64_t{1} << 40);
    EXPECT_THAT(refusal(image), HasSubstr("key '" + key(suffix) + "' is"));
  }
}

TEST_P(EachArchitecture, NumbersOutOfRangeAreRefused) {
  const auto with = [&](const std::string& suffix, auto value) {
    GgufImage image = image_;
    image.key(key(suffix), value);
    return refusal(image);
  };
  EXPECT_THAT(with("attention.head_count_kv", uint32_t{3}), HasSubstr("expected a divisor of 4"));
  EXPECT_THAT(with("attention.head_count_kv", uint32_t{8}), HasSubstr("integer from 1 to 4"));
  EXPECT_THAT(with("attention.head_count_kv", std::vector<uint32_t>{2, 2}), HasSubstr("an array"));
  EXPECT_THAT(with("attention.key_length", uint32_t{15}), HasSubstr("heads have 15 values"));
  EXPECT_THAT(with("attention.value_length", uint32_t{8}), HasSubstr("is 8; expected 16"));
  EXPECT_THAT(with("attention.layer_norm_rms_epsilon", 0.0f), HasSubstr("a number above 0"));
  EXPECT_THAT(with("attention.layer_norm_rms_epsilon", 1e-60), HasSubstr("a number above 0"));
  EXPECT_THAT(with("attention.layer_norm_rms_epsilon", NAN), HasSubstr("a finite number"));
  EXPECT_THAT(with("rope.freq_base", -1.0f), HasSubstr("a number above 0"));
  EXPECT_THAT(with("rope.freq_base", 1e30f), HasSubstr("a number above 0"));
  EXPECT_THAT(with("block_count", uint32_t{3}), HasSubstr("'blk.2.attn_norm.weight' is missing"));
  EXPECT_THAT(with("block_count", uint32_t{1}), HasSubstr("'blk.1.attn_norm.weight' is not one"));
}

TEST_P(EachArchitecture, OtherMathematicsIsRefusedByName) {
  const auto with = [&](const std::string& suffix, auto value) {
    GgufImage image = image_;
    image.key(key(suffix), value);
    const std::string message = refusal(image);
    EXPECT_THAT(message, testing::AnyOf("the model was accepted", HasSubstr(key(suffix))));
    return message;
  };
  for (const char* kind : {"yarn", "longrope", "Linear", ""}) {
    EXPECT_THAT(with("rope.scaling.type", kind), HasSubstr("not supported, only 'none' is"));
  }
  for (const char* suffix : {"rope.scaling.factor", "rope.scale_linear", "attention.scale",
                             "attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
                             "embedding_scale", "residual_scale", "attention.max_alibi_bias"}) {
    EXPECT_THAT(with(suffix, 8.0f), HasSubstr("is 8; its mathematics is not supported"));
  }
  EXPECT_THAT(with("expert_count", uint32_t{8}), HasSubstr("only 0 is"));
  EXPECT_THAT(with("attention.causal", false), HasSubstr("only 1 is"));
  EXPECT_THAT(with("rope.dimension_count", uint32_t{8}), HasSubstr("is 8; expected 16"));
  EXPECT_THAT(with("rope.dimension_sections", std::vector<uint32_t>{2, 3, 3}),
              HasSubstr("is not a number"));

  const std::string accepted = "the model was accepted";
  EXPECT_EQ(with("rope.scaling.type", "none"), accepted);
  EXPECT_EQ(with("rope.scaling.type", "linear"), accepted);  // by a factor of 1
  EXPECT_EQ(with("rope.scaling.factor", 1.0f), accepted);
  EXPECT_EQ(with("final_logit_softcapping", 0.0f), accepted);
  EXPECT_EQ(with("expert_count", uint32_t{0}), accepted);
  EXPECT_EQ(with("attention.causal", true), accepted);
  EXPECT_EQ(with("rope.dimension_count", uint32_t{16}), accepted);
}

TEST_P(EachArchitecture, MoreTokensThanRowsAreRefused) {  // C106: fewer are padding
  image_.key("tokenizer.ggml.tokens", std::vector<std::string>(39, "t"));
  EXPECT_EQ(config_of(image_).vocabulary, 40);
  image_.key("tokenizer.ggml.tokens", std::vector<std::string>(41, "t"));
  EXPECT_THAT(refusal(image_), HasSubstr("has 41 tokens; expected at most 40"));
}

TEST_P(EachArchitecture, HeadsFollowFromTheWidthWhereTheFileSaysNothing) {
  image_.without_key(key("attention.key_length")).without_key(key("attention.value_length"));
  EXPECT_EQ(config_of(image_).head_dim, 16);
  image_.without_key(key("attention.head_count_kv"));
  EXPECT_THAT(refusal(image_), HasSubstr("attn_k.weight' has shape (64, 32); expected (64, 64)"));
}

TEST_P(EachArchitecture, NameFallsBackOnTheFile) {
  image_.without_key("general.name");
  EXPECT_EQ(config_of(image_).name, "tiny");
}

TEST(ModelSource, RotaryFactorsOfLlama3AreHonoured) {
  GgufImage image = tiny_model("llama");
  std::vector<float> factors(8, 4.0f);
  image.tensor("rope_freqs.weight", {8}, factors);
  const Bytes bytes = image.bytes();
  const GgufFile file("tiny.gguf", bytes);
  EXPECT_EQ(read_model(file).rotary_factors.data, file.tensor("rope_freqs.weight").view.data);
  for (const float bad : {0.0f, -1.0f, INFINITY, NAN}) {
    factors[7] = bad;
    image.without_tensor("rope_freqs.weight").tensor("rope_freqs.weight", {8}, factors);
    EXPECT_THAT(refusal(image), HasSubstr("'rope_freqs.weight' holds"));
  }
  image.without_tensor("rope_freqs.weight").tensor("rope_freqs.weight", DType::f32, {16});
  EXPECT_THAT(refusal(image), HasSubstr("'rope_freqs.weight' has shape (16); expected (8)"));
  image = tiny_model("qwen2");
  image.tensor("rope_freqs.weight", DType::f32, {8});
  EXPECT_THAT(refusal(image), HasSubstr("'rope_freqs.weight' is not one of"));
}

TEST(ModelSource, BiasesBelongToQwen2Alone) {
  GgufImage image = tiny_model("llama");
  image.tensor("blk.0.attn_q.bias", DType::f32, {64});
  EXPECT_THAT(refusal(image), HasSubstr("'blk.0.attn_q.bias' is not one of architecture llama"));
}

TEST(ModelSource, WindowsAreForGemma3Alone) {
  for (const std::string arch : {"llama", "qwen2", "qwen3"}) {
    GgufImage image = tiny_model(arch);
    image.key(arch + ".attention.sliding_window", uint32_t{64});
    EXPECT_THAT(refusal(image), HasSubstr("a sliding window is not supported for " + arch));
    for (const uint32_t harmless : {0u, 128u}) {
      image.key(arch + ".attention.sliding_window", harmless);
      EXPECT_EQ(config_of(image).layers[0].window, 0);
    }
  }
}

TEST(ModelSource, Gemma3LayersAlternate) {
  GgufImage image = tiny_model("gemma3", {.layers = 7});
  image.without_key("gemma3.rope.freq_base");
  ModelConfig config = config_of(image);
  EXPECT_THAT(config.rotary_bases, ElementsAre(1e6f, 1e4f));
  for (int layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(config.layers[layer].window, layer == 5 ? 0 : 8);
    EXPECT_EQ(config.layers[layer].rotary_table, layer == 5 ? 0 : 1);
  }
  image.key("gemma3.attention.sliding_window_pattern", uint32_t{2});
  image.key("gemma3.rope.freq_base_swa", 5e3f);
  config = config_of(image);
  EXPECT_THAT(config.rotary_bases, ElementsAre(1e6f, 5e3f));
  EXPECT_EQ(config.layers[0].window, 8);
  EXPECT_EQ(config.layers[1].window, 0);
  image.without_key("gemma3.attention.sliding_window");
  EXPECT_THAT(refusal(image), HasSubstr("'gemma3.attention.sliding_window' is missing"));
}

TEST(ModelSource, OtherFilesAreRefused) {
  GgufImage image = tiny_model("llama");
  image.key("general.architecture", "mamba");
  EXPECT_THAT(refusal(image),
              HasSubstr("'mamba' is not supported; expected llama, qwen2, qwen3 or gemma3"));
  image = tiny_model("llama");
  image.key("general.type", "adapter");
  EXPECT_THAT(refusal(image), HasSubstr("key 'general.type' is 'adapter'; expected 'model'"));
  image = tiny_model("llama");
  image.key("split.count", uint16_t{3});
  EXPECT_THAT(refusal(image), HasSubstr("one part of a split model"));
}

struct RealModel {
  const char* file;
  const char* architecture;
  int layers, dim, ffn, heads, kv_heads, head_dim, vocabulary;
  float base, eps;
  bool tied;
};
void PrintTo(const RealModel& model, std::ostream* out) {
  *out << model.file;
}

class RealModels : public testing::TestWithParam<RealModel> {};
INSTANTIATE_TEST_SUITE_P(
    ModelSource, RealModels,
    testing::Values(RealModel{"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", 30, 576, 1536, 9, 3, 64,
                              49152, 1e5f, 1e-5f, true},
                    RealModel{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2", 24, 896, 4864, 14,
                              2, 64, 151936, 1e6f, 1e-6f, false},
                    RealModel{"qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", "qwen2", 28, 1536, 8960,
                              12, 2, 128, 151936, 1e6f, 1e-6f, false},
                    RealModel{"gemma-3-270m-q4_k_m.gguf", "gemma3", 18, 640, 2048, 4, 1, 256,
                              262144, 1e6f, 1e-6f, true}));

TEST_P(RealModels, HaveTheirPapersShapes) {
  const RealModel& expected = GetParam();
  REQUIRE_MODEL(path, expected.file);
  const GgufFile file(path);
  const ModelSource source = read_model(file);
  const ModelConfig& config = source.config;
  EXPECT_EQ(config.architecture, expected.architecture);
  EXPECT_EQ(config.layers.size(), static_cast<size_t>(expected.layers));
  EXPECT_EQ(config.dim, expected.dim);
  EXPECT_EQ(config.ffn, expected.ffn);
  EXPECT_EQ(config.heads, expected.heads);
  EXPECT_EQ(config.kv_heads, expected.kv_heads);
  EXPECT_EQ(config.head_dim, expected.head_dim);
  EXPECT_EQ(config.vocabulary, expected.vocabulary);
  EXPECT_EQ(config.rotary_bases[0], expected.base);
  EXPECT_EQ(config.norm_eps, expected.eps);
  EXPECT_EQ(source.output.data == source.embedding.data, expected.tied);
  if (config.architecture == "gemma3") {
    EXPECT_THAT(config.rotary_bases, ElementsAre(1e6f, 1e4f));
    EXPECT_EQ(config.attention_scale, 1.0f / 16.0f);
    EXPECT_EQ(config.embedding_scale, std::sqrt(640.0f));
    std::set<int> global;
    for (int layer = 0; layer < expected.layers; ++layer) {
      const int window = config.layers[layer].window;
      if (window == 0) global.insert(layer);
      EXPECT_TRUE(window == 0 || window == 512) << window;
    }
    EXPECT_THAT(global, ElementsAre(5, 11, 17));
  }
}

}  // namespace
}  // namespace coppice
