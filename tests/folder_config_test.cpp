// Configs of Hugging Face folders: what a GGUF file of the model says, every spelling of it, and
// one clear refusal for numbers out of range and for other mathematics.
#include "core/folder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/tiny_folder.h"

namespace coppice {
namespace {

using nlohmann::json;
using test::error_of;
using test::folder_of;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig config_of(const json& config) {
  return read_folder_config(JsonObject::parse("config.json", config.dump())).model;
}

class EachConfig : public testing::TestWithParam<const char*> {
 protected:
  /// What the config answers with another value for a key; an error names the key.
  static std::string with(const std::string& key, const json& value) {
    json config = folder_of(GetParam()).config;
    config[key] = value;
    const std::string message = error_of([&] { config_of(config); });
    EXPECT_THAT(message, testing::AnyOf("no error", HasSubstr(key))) << value;
    return message;
  }
};
INSTANTIATE_TEST_SUITE_P(FolderConfig, EachConfig,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& test_info) { return std::string(test_info.param); });

TEST_P(EachConfig, HasTheConfigOfItsGgufFile) {
  const test::Bytes bytes = test::image_of(GetParam()).bytes();
  const ModelConfig expected = read_model(GgufFile("tiny.gguf", bytes)).config;
  const ModelConfig config = config_of(folder_of(GetParam()).config);
  EXPECT_EQ(config.architecture, expected.architecture);
  EXPECT_EQ(config.ffn, expected.ffn);
  EXPECT_EQ(config.context, expected.context);
  EXPECT_EQ(config.norm_eps, expected.norm_eps);
  EXPECT_EQ(config.embedding_scale, expected.embedding_scale);
  EXPECT_EQ(config.attention_scale, expected.attention_scale);
  EXPECT_EQ(config.rotary_bases, expected.rotary_bases);
  EXPECT_EQ(config.rotary, RotaryStyle::half_split);
  for (size_t l = 0; l < config.layers.size(); ++l) {
    EXPECT_EQ(config.layers[l].window, expected.layers[l].window);
    EXPECT_EQ(config.layers[l].rotary_table, expected.layers[l].rotary_table);
  }
}

TEST_P(EachConfig, OtherMathematicsIsRefusedByKey) {
  const std::string arch = GetParam();
  EXPECT_THAT(with("quantization_config", {{"quant_method", "gptq"}}), HasSubstr("GGUF file"));
  EXPECT_THAT(with("mlp_bias", true), HasSubstr("is true; its mathematics is not supported"));
  EXPECT_THAT(with("final_logit_softcapping", 30.0), HasSubstr("is 30.0; its mathematics"));
  EXPECT_THAT(with("partial_rotary_factor", 0.5), HasSubstr("only 1.0 is"));
  EXPECT_THAT(with(arch == "gemma3" ? "hidden_activation" : "hidden_act", "relu"),
              HasSubstr("is 'relu'; its mathematics is not supported"));
  if (arch != "qwen2") {
    EXPECT_THAT(with("attention_bias", true), HasSubstr("only false is"));
  }
  for (const char* type : {"yarn", "linear", "dynamic", "longrope"}) {
    EXPECT_THAT(with("rope_scaling", {{"rope_type", type}, {"factor", 4.0}}),
                HasSubstr(fmt::format("'rope_scaling.rope_type' is '{}'", type)));
    EXPECT_THAT(with("rope_scaling", {{"type", type}, {"factor", 4.0}}),
                HasSubstr(fmt::format("'rope_scaling.type' is '{}'", type)));
  }
  EXPECT_THAT(with("layer_types", {"full_attention", "linear_attention"}),
              HasSubstr("'linear_attention'; its mathematics is not supported"));
  EXPECT_THAT(with("layer_types", json::array({"full_attention"})), HasSubstr("has 1 entries"));
  EXPECT_THAT(with("model_type", "gpt2"), HasSubstr("supported are llama, qwen2, qwen3, gemma3"));
  EXPECT_EQ(with("final_logit_softcapping", nullptr), "no error");
  EXPECT_EQ(with("rope_scaling", {{"rope_type", "default"}}), "no error");
}

TEST_P(EachConfig, NumbersAreChecked) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "vocab_size",
                          "num_hidden_layers", "max_position_embeddings", "rms_norm_eps"}) {
    const auto refused = HasSubstr(fmt::format("config.json: key '{}' is", key));
    for (const json& bad : {json("64"), json(-1), json(0), json(1e30), json(1ull << 63),
                            json(nullptr), json::array({1}), json::object()}) {
      EXPECT_THAT(with(key, bad), refused) << bad;
    }
  }
  EXPECT_THAT(with("num_key_value_heads", 3), HasSubstr("expected a divisor of 4"));
  EXPECT_THAT(with("num_key_value_heads", 8), HasSubstr("integer from 1 to 4"));
  EXPECT_THAT(with("head_dim", 15), HasSubstr("heads have 15 values"));
  EXPECT_THAT(with("rope_theta", -1.0), HasSubstr("above 0"));
  EXPECT_THAT(with("tie_word_embeddings", 1), HasSubstr("true or false"));
  EXPECT_THAT(with("rope_scaling", 1), HasSubstr("expected an object"));
}

TEST(FolderConfig, NewerConfigsHoldTheRotaryBaseInAnObject) {
  json config = folder_of("qwen3").config;
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_THAT(config_of(config).rotary_bases, ElementsAre(1e6f));
  config = folder_of("gemma3").config;
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 2e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}};
  EXPECT_THAT(config_of(config).rotary_bases, ElementsAre(2e6f, 3e4f));
  config["rope_parameters"]["full_attention"]["rope_type"] = "yarn";
  EXPECT_THAT(error_of([&] { config_of(config); }),
              HasSubstr("'rope_parameters.full_attention.rope_type' is 'yarn'"));
  config["rope_parameters"].erase("full_attention");
  EXPECT_THAT(error_of([&] { config_of(config); }),
              HasSubstr("'rope_parameters.full_attention' is missing"));
}

// Llama 3.1's own numbers; the frequencies by the formula of its paper's code, one at a time.
TEST(FolderConfig, Llama3ScalesLongWaves) {
  json config = folder_of("llama").config;
  config["rope_theta"] = 5e5;
  config["head_dim"] = 128;
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  const auto factors =
      read_folder_config(JsonObject::parse("config.json", config.dump())).rotary_factors;
  ASSERT_EQ(factors.size(), 64u);
  int blended = 0;
  for (int i = 0; i < 64; ++i) {
    const double frequency = std::pow(5e5, -i / 64.0), wave = 2 * std::numbers::pi / frequency;
    double scaled = frequency;
    if (wave > 8192) {
      scaled = frequency / 8;
    } else if (wave > 2048) {
      const double smooth = (8192 / wave - 1) / 3;
      scaled = (1 - smooth) * frequency / 8 + smooth * frequency;
      ++blended;
    }
    EXPECT_NEAR(factors[i], frequency / scaled, 1e-5) << i;
  }
  EXPECT_GT(blended, 2);
  config["rope_scaling"]["high_freq_factor"] = 1.0;
  EXPECT_THAT(error_of([&] { config_of(config); }), HasSubstr("more than low_freq_factor"));
  config["rope_scaling"].erase("factor");
  EXPECT_THAT(error_of([&] { config_of(config); }), HasSubstr("'rope_scaling.factor' is missing"));
}

TEST(FolderConfig, WindowsFollowTheirKeys) {
  const auto windows = [](const json& config) {
    std::vector<int> seen;
    for (const LayerKind& kind : config_of(config).layers) seen.push_back(kind.window);
    return seen;
  };
  json config = folder_of("qwen2").config;
  config["num_hidden_layers"] = 4;
  config["sliding_window"] = 32;
  config["max_window_layers"] = 2;
  EXPECT_THAT(windows(config), ElementsAre(0, 0, 0, 0));  // not switched on
  config["use_sliding_window"] = true;
  EXPECT_THAT(windows(config), ElementsAre(0, 0, 32, 32));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_THAT(windows(config), ElementsAre(32, 0, 0, 32));
  config = folder_of("gemma3").config;
  config["num_hidden_layers"] = 4;
  EXPECT_THAT(windows(config), ElementsAre(8, 0, 8, 0));
  config["layer_types"] = {"sliding_attention", "sliding_attention", "full_attention",
                           "full_attention"};
  EXPECT_THAT(windows(config), ElementsAre(8, 8, 0, 0));
  config = folder_of("llama").config;
  config["sliding_window"] = 32;
  EXPECT_THAT(error_of([&] { config_of(config); }), HasSubstr("not supported for llama"));
}

}  // namespace
}  // namespace coppice
