// Models from Hugging Face folders: the same logits as the same weights give from a GGUF file, one
// file or shards, and one clear refusal for all that is missing or damaged.
#include "core/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model.h"
#include "core/model_file.h"
#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/tiny_folder.h"

namespace coppice {
namespace {

using nlohmann::json;
using test::error_of;
using test::folder_of;
using test::image_of;
using test::Scratch;
using test::TinyFolder;
using testing::AllOf;
using testing::HasSubstr;

/// Of the last of 20 tokens: past gemma3's window, on the backend named.
std::vector<float> logits_of(const ModelSource& source, const std::string& name) {
  const auto backend = make_backend({.name = name, .threads = 1});
  const Model model(source, *backend);
  KVCache cache(*backend, model.kv_shapes(), 2);
  Workspace workspace(model, *backend, {.rows = 20, .logit_rows = 1});
  std::vector<int32_t> token, parent;
  for (int i = 0; i < 20; ++i) {
    token.push_back(i * 7 % 40);
    parent.push_back(i - 1);
  }
  const std::vector<int32_t> wanted = {19};
  const SeqId sequence = cache.open();
  const auto tail = cache.reserve(sequence, 20);
  const SequenceRows place{0, 20, 0, cache.pages(sequence)};
  const ForwardOutput out = model.forward(
      {.token = token, .parent = parent, .sequences = {&place, 1}, .logit_rows = wanted}, cache,
      workspace);
  return {out.logits.begin(), out.logits.end()};
}

std::vector<float> logits_of(const TinyFolder& folder, const std::string& backend = "reference") {
  const Scratch scratch;
  folder.write(scratch.path());
  ModelFolder file(scratch.path());
  return logits_of(file.source(), backend);
}

/// What reading all of the folder answers.
std::string refusal(const TinyFolder& folder) {
  const Scratch scratch;
  folder.write(scratch.path());
  const std::string message = error_of([&] {
    ModelFolder file(scratch.path());
    file.source();
    const Tokenizer tokenizer(file.vocabulary());
  });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  return message;
}

class EachArchitecture : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(ModelFolder, EachArchitecture,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& test_info) { return std::string(test_info.param); });

// C085: four query heads and two for keys; llama's rows stand in another order than in a GGUF file.
TEST_P(EachArchitecture, GivesTheLogitsOfItsGgufFile) {
  const std::string architecture = GetParam();
  const test::Bytes bytes = image_of(architecture).bytes();
  const GgufFile file("tiny.gguf", bytes);
  const TinyFolder folder = folder_of(architecture);
  for (const char* backend : {"reference", "cpu"}) {
    const std::vector<float> expected = logits_of(read_model(file), backend);
    const std::vector<float> logits = logits_of(folder, backend);
    if (architecture != "llama") {
      EXPECT_EQ(logits, expected) << backend;
      continue;
    }
    ASSERT_EQ(logits.size(), expected.size());  // scores are summed in another order
    for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(logits[i], expected[i], 2e-3) << backend;
  }
}

// A head that was trained for a GGUF file fits the folder of the same model.
TEST_P(EachArchitecture, HasTheFingerprintOfItsGgufFile) {
  const Scratch scratch;
  folder_of(GetParam()).write(scratch.path());
  const auto backend = make_backend({.name = "reference", .threads = 1});
  const test::Bytes bytes = image_of(GetParam()).bytes();
  const Model from_gguf(read_model(GgufFile("tiny.gguf", bytes)), *backend);
  ModelFile folder(scratch.path());
  EXPECT_EQ(Model(folder.source(), *backend).fingerprint(), from_gguf.fingerprint());
}

TEST_P(EachArchitecture, ShardsAreOneModel) {
  const TinyFolder folder = folder_of(GetParam());
  const Scratch scratch;
  folder.write_shards(scratch.path());
  ModelFolder file(scratch.path());
  EXPECT_EQ(logits_of(file.source(), "reference"), logits_of(folder));
}

TEST_P(EachArchitecture, EveryTensorIsNeededInItsShape) {
  const TinyFolder whole = folder_of(GetParam());
  for (size_t i = 0; i < whole.tensors.size(); ++i) {
    const std::string name = "tensor '" + whole.tensors[i].name + "'";
    TinyFolder folder = whole;
    folder.tensors.erase(folder.tensors.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_THAT(refusal(folder), HasSubstr(name + " is missing"));
    folder = whole;
    folder.tensors[i].shape[0] -= 1;
    folder.tensors[i].bytes.resize(folder.tensors[i].bytes.size() / whole.tensors[i].shape[0] *
                                   static_cast<size_t>(folder.tensors[i].shape[0]));
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr("model.safetensors: " + name + " is F32"),
                                       HasSubstr("expected F32, F16 or BF16 of (")));
  }
}

TEST_P(EachArchitecture, OutputIsTiedOrItsOwn) {
  TinyFolder folder = folder_of(GetParam());
  const std::vector<float> tied = logits_of(folder);
  TinyFolder::Tensor output = folder.tensor("model.embed_tokens.weight");
  output.name = "lm_head.weight";
  std::fill(output.bytes.begin(), output.bytes.end(), std::byte{0});
  folder.tensors.push_back(output);
  EXPECT_EQ(logits_of(folder), tied);  // some files hold it though it is tied
  folder.config["tie_word_embeddings"] = false;
  EXPECT_EQ(logits_of(folder), std::vector<float>(tied.size(), 0.0f));
  folder.tensors.pop_back();
  EXPECT_THAT(refusal(folder), HasSubstr("tensor 'lm_head.weight' is missing"));
  folder.config.erase("tie_word_embeddings");
  EXPECT_EQ(refusal(folder) == "no error", std::string(GetParam()) == "gemma3");
}

TEST_P(EachArchitecture, HalvesAreReadAsTheyStand) {
  TinyFolder rounded = folder_of(GetParam()), halves = rounded;
  for (size_t t = 0; t < halves.tensors.size(); ++t) {
    test::Bytes& wide = rounded.tensors[t].bytes;
    test::Bytes narrow;
    const bool brain = t % 2 == 0;
    for (size_t i = 0; i < wide.size(); i += 4) {
      float value = 0.0f;
      std::memcpy(&value, wide.data() + i, 4);
      uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      const uint16_t half = brain ? static_cast<uint16_t>(bits >> 16) : float_to_half(value);
      test::put(narrow, half);
      value = brain ? bfloat16_to_float(half) : half_to_float(half);
      std::memcpy(wide.data() + i, &value, 4);
    }
    halves.tensors[t].dtype = brain ? "BF16" : "F16";
    halves.tensors[t].bytes = narrow;
  }
  EXPECT_EQ(logits_of(halves), logits_of(rounded));
}

TEST(ModelFolder, Llama3sFactorsReachTheForwardPass) {
  TinyFolder folder = folder_of("llama");
  const std::vector<float> plain = logits_of(folder);
  folder.config["rope_scaling"] = {{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 64}};
  EXPECT_NE(logits_of(folder), plain);
}

TEST(ModelFolder, TensorsNobodyAsksForAreRefused) {
  TinyFolder folder = folder_of("llama");
  folder.tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {0}, {}});
  EXPECT_EQ(refusal(folder), "no error");
  folder.tensors.push_back({"model.layers.0.self_attn.q_proj.bias", "F32", {0}, {}});
  EXPECT_THAT(refusal(folder), HasSubstr("'model.layers.0.self_attn.q_proj.bias' is not one of"));
}

TEST(ModelFolder, MissingAndDamagedFilesAreNamed) {
  const TinyFolder folder = folder_of("llama");
  const auto after = [&](bool shards, const std::function<void(const Scratch&)>& damage) {
    const Scratch scratch;
    shards ? folder.write_shards(scratch.path()) : folder.write(scratch.path());
    damage(scratch);
    return error_of([&] {
      ModelFile file(scratch.path());
      file.source();
      const Tokenizer tokenizer(file.vocabulary());
    });
  };
  const auto without = [&](bool shards, const std::string& name) {
    return after(shards, [&](const Scratch& scratch) {
      ASSERT_TRUE(std::filesystem::remove(scratch / name)) << name;
    });
  };
  const auto cut = [&](const std::string& name) {
    return after(false, [&](const Scratch& scratch) {
      std::filesystem::resize_file(scratch / name, std::filesystem::file_size(scratch / name) - 1);
    });
  };
  EXPECT_THAT(without(false, "config.json"), HasSubstr("config.json: no such file"));
  EXPECT_THAT(without(false, "tokenizer.json"), HasSubstr("tokenizer.json: no such file"));
  EXPECT_THAT(without(false, "model.safetensors"), HasSubstr("pickled weights"));
  EXPECT_THAT(without(true, "model-00002-of-00002.safetensors"),
              HasSubstr("model-00002-of-00002.safetensors: the shard is missing"));
  EXPECT_EQ(without(false, "tokenizer_config.json"), "no error");
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_THAT(cut(name), AllOf(HasSubstr(name), HasSubstr("is no JSON, or was cut")));
  }
  EXPECT_THAT(cut("model.safetensors"), HasSubstr("ends past the file's end"));

  const auto index = [&](const std::function<void(json&)>& change) {
    return after(true, [&](const Scratch& scratch) {
      const auto path = scratch / "model.safetensors.index.json";
      json map = json::parse(std::ifstream(path));
      change(map);
      std::ofstream(path) << map;
    });
  };
  EXPECT_THAT(index([](json& map) { map.erase("weight_map"); }), HasSubstr("'weight_map'"));
  EXPECT_THAT(index([](json& map) { map["weight_map"]["none"] = map["weight_map"].front(); }),
              HasSubstr("tensor 'none' is missing"));
  for (const char* elsewhere : {"../model.safetensors", "/etc/passwd", "a.bin", ""}) {
    EXPECT_THAT(index([&](json& map) { map["weight_map"]["model.norm.weight"] = elsewhere; }),
                HasSubstr("'weight_map.model.norm.weight' is '" + std::string(elsewhere) + "'"));
  }
  EXPECT_THAT(after(true,
                    [&](const Scratch& scratch) {
                      std::filesystem::copy_file(scratch / "model-00001-of-00002.safetensors",
                                                 scratch / "model-00002-of-00002.safetensors",
                                                 std::filesystem::copy_options::overwrite_existing);
                    }),
              HasSubstr("as well; fetch the model again"));
}

TEST(ModelFolder, IsFoundByItsParts) {
  const Scratch scratch;
  folder_of("llama").write(scratch.path());
  for (const auto& path : {scratch.path(), scratch.path() / "", scratch / "config.json",
                           scratch / "model.safetensors"}) {
    EXPECT_EQ(ModelFolder::find(path), scratch.path()) << path;
    EXPECT_EQ(ModelFile(path).source().config.name, scratch.path().filename()) << path;
  }
  EXPECT_TRUE(ModelFolder::find(scratch / "model.gguf").empty());
  std::ofstream(scratch / "head.safetensors") << "x";
  EXPECT_THAT(error_of([&] { ModelFolder::find(scratch / "head.safetensors"); }),
              HasSubstr("is not one of the files that hold the weights"));
  std::filesystem::remove(scratch / "config.json");
  EXPECT_THAT(error_of([&] { ModelFolder::find(scratch / "head.safetensors"); }),
              HasSubstr("no config.json stands beside it"));
}

TEST(ModelFolder, IsTheSameModelWhileItsFilesAre) {
  const Scratch one, two;
  TinyFolder folder = folder_of("llama");
  folder.write(one.path());
  folder.write(two.path());
  const ModelIdentity identity = identify_model(one.path());
  EXPECT_EQ(identify_model(two.path() / "config.json").sha256, identity.sha256);
  EXPECT_GT(identity.bytes, std::filesystem::file_size(one / "model.safetensors"));
  std::ofstream(two / "generation_config.json") << "{}";
  EXPECT_NE(identify_model(two.path()).sha256, identity.sha256);
}

}  // namespace
}  // namespace coppice
