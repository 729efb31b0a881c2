// Every method end to end on the emulated CUDA backend: its text is that backend's own baseline's,
// whether the device judges or the host; its logits are the reference's within tolerance, with the
// same argmax wherever the reference is sure; and they do not depend on the number of rows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/gguf.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/runtime.h"
#include "tests/cuda_decode.h"
#include "tests/test_files.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::CudaModel;
using test::decode;
using test::Decoding;
using test::TinyModel;

class CudaMethods : public testing::Test {
 protected:
  ~CudaMethods() override { std::filesystem::remove(store_); }

  /// Every method under each rule gives the baseline's text; rejection the same on host and device.
  void check_methods(const CudaModel& target, const Model& draft, int prompt, int tokens,
                     std::initializer_list<float> temperatures) {
    for (const float temperature : temperatures) {
      Decoding how{.temperature = temperature, .tokens = tokens, .prompt = prompt};
      how.draft = &draft;
      how.rule = temperature == 0.0f ? "greedy" : "coupled";
      const auto expected = decode(target, how);
      how.host_judges = true;
      EXPECT_EQ(decode(target, how), expected) << "judged on the host, " << how.rule;
      how.host_judges = false;
      for (const MethodEntry& method : methods()) {
        how.method = method.name;
        const OptionMap options = test::options_for(how.method, target, store_);
        EXPECT_EQ(decode(target, how, options), expected) << method.name << ' ' << how.rule;
      }
    }
    const OptionMap chain, specinfer = {{"shape", std::string("fixed"), "test"},
                                        {"branching", std::vector<int64_t>{1, 1, 3}, "test"},
                                        {"replacement", true, "test"}};
    for (const OptionMap& options : {chain, specinfer}) {
      Decoding how{.method = "draft_model", .rule = "rejection", .temperature = 1.0f};
      how.tokens = tokens;
      how.prompt = prompt;
      how.draft = &draft;
      const auto on_device = decode(target, how, options);
      how.host_judges = true;
      EXPECT_EQ(decode(target, how, options), on_device) << options.size();
    }
  }

  void check_logits(const ModelSource& source, const CudaModel& target, double tolerance) {
    const auto reference = make_backend({.name = "reference", .threads = 1});
    const CudaModel oracle(source, *reference, target.tokenizer);
    std::vector<int32_t> text;
    for (int i = 0; i < 40; ++i) text.push_back((i * i + 5 * i) % 57);
    const std::vector<float> expected = test::logits_of(oracle, text, 40);
    const std::vector<float> logits = test::logits_of(target, text, 40);
    EXPECT_EQ(test::logits_of(target, text, 7), logits);
    const int vocabulary = source.config.vocabulary;
    double size = 0.0;
    for (const float x : expected) size = std::max(size, std::abs(double{x}));
    int sure = 0;
    for (size_t row = 0; row < text.size(); ++row) {
      const float* e = expected.data() + row * vocabulary;
      const float* l = logits.data() + row * vocabulary;
      int first = 0;
      for (int i = 1; i < vocabulary; ++i) first = e[i] > e[first] ? i : first;
      double second = -INFINITY, worst = 0.0;
      for (int i = 0; i < vocabulary; ++i) {
        if (i != first) second = std::max(second, double{e[i]});
        worst = std::max(worst, std::abs(double{e[i]} - l[i]));
      }
      EXPECT_LT(worst, tolerance * size) << "row " << row;
      if (e[first] - second < tolerance * size) continue;
      ++sure;
      EXPECT_EQ(std::max_element(l, l + vocabulary) - l, first) << "row " << row;
    }
    EXPECT_GT(sure, 10);
  }

  const std::filesystem::path store_ = std::filesystem::path(testing::TempDir()) /
                                       ("cuda_methods-" + std::to_string(::getpid()) + ".store");
  std::unique_ptr<Backend> backend_ = emulated_cuda_entry().make({.target = "exact"});
};

TEST_F(CudaMethods, ASmallRandomModel) {
  const TinyModel tiny({.layers = 2, .type = DType::q8_0, .sharpness = 4.0f});
  const TinyModel other({.layers = 1, .type = DType::q8_0, .sharpness = 4.0f, .seed = 3});
  const Tokenizer tokenizer = tiny.tokenizer();
  const CudaModel target(tiny.source(), *backend_, tokenizer);
  const CudaModel draft(other.source(), *backend_, tokenizer);
  check_logits(tiny.source(), target, 0.05);
  check_methods(target, draft.model, 31, 7, {0.0f, 1.0f});
}

TEST_F(CudaMethods, BiasesNormsAndWindows) {
  for (const bool gemma : {false, true}) {
    const TinyModel tiny({.gemma_like = gemma, .biases = !gemma, .sharpness = 4.0f});
    const Tokenizer tokenizer = tiny.tokenizer();
    const CudaModel target(tiny.source(), *backend_, tokenizer);
    check_logits(tiny.source(), target, 1e-3);
  }
}

/// SmolLM2's first two layers, and the first 2048 tokens of its vocabulary.
ModelSource beginning_of(const GgufFile& file) {
  ModelSource source = read_model(file);
  source.layers.resize(2);
  source.config.layers.resize(2);
  source.config.vocabulary = 2048;
  source.config.context = 256;
  source.embedding.rows = source.output.rows = 2048;
  return source;
}

TEST_F(CudaMethods, TwoLayersOfSmolLm2) {
  REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const GgufFile file(path);
  const ModelSource source = beginning_of(file);
  const TinyModel words({.vocabulary = 2048, .layers = 1});
  const Tokenizer tokenizer = words.tokenizer();
  const CudaModel target(source, *backend_, tokenizer);
  check_logits(source, target, 0.012);
}

TEST_F(CudaMethods, MethodsOnTwoLayersOfSmolLm2) {
  REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const GgufFile file(path);
  const ModelSource source = beginning_of(file);
  const TinyModel words({.vocabulary = 2048, .layers = 1});
  const Tokenizer tokenizer = words.tokenizer();
  const CudaModel target(source, *backend_, tokenizer);
  check_methods(target, target.model, 7, 3, {0.0f, 1.0f});
}

// A step's results are a few ids: logits stay on the device.
TEST_F(CudaMethods, OnlyIdsComeBack) {
  const TinyModel tiny({.layers = 1, .type = DType::q8_0});
  const Tokenizer tokenizer = tiny.tokenizer();
  const CudaModel target(tiny.source(), *backend_, tokenizer);
  auto& device = cuda::host::fake_device();
  device.copied_to_host = 0;
  device.graph_launches = 0;
  decode(target, {.tokens = 8});
  EXPECT_LT(device.copied_to_host, 8u * 2 * 256 + 2048);
  EXPECT_GT(device.graph_launches, 3);
}

}  // namespace
}  // namespace coppice
