// The backends against values from an independent float32 implementation: logits, argmaxes and
// perplexity of real models. `reference` meets the logits within 2e-3 and every argmax whose margin
// is above that; `cpu` (8-bit activations) is held to perplexity, its argmax rate is reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/decoder.h"
#include "experiments/perplexity.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

constexpr double kLogitTolerance = 2e-3;

struct GoldenModel {
  const char* name;
  const char* gguf;
};
constexpr GoldenModel kModels[] = {
    {"smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"},
    {"qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
    {"gemma-3-270m", "gemma-3-270m-q4_k_m.gguf"},
};

class Golden : public testing::TestWithParam<GoldenModel> {
 protected:
  static nlohmann::json values() {
    std::ifstream in(test::golden_file(std::string(GetParam().name) + ".json"));
    return nlohmann::json::parse(in);
  }
};

// Logits behind every token from `first_logit` on, teacher-forced in one sequence.
std::vector<std::vector<float>> logits_of(const Model& model, Backend& backend,
                                          const std::vector<int32_t>& tokens, int first_logit) {
  KVCache cache(backend, model.kv_shapes(), KVCache::pages_for(static_cast<int>(tokens.size())));
  const int rows = static_cast<int>(tokens.size());
  Workspace workspace(model, backend, {.rows = rows, .logit_rows = rows - first_logit});
  const SeqId sequence = cache.open();
  auto tail = cache.reserve(sequence, rows);
  std::vector<int32_t> parent, wanted;
  for (int i = 0; i < rows; ++i) {
    parent.push_back(i - 1);
    if (i >= first_logit) wanted.push_back(i);
  }
  const SequenceRows place{0, rows, 0, cache.pages(sequence)};
  const ForwardBatch batch{
      .token = tokens, .parent = parent, .sequences = {&place, 1}, .logit_rows = wanted};
  const ForwardOutput output = model.forward(batch, cache, workspace);
  std::vector<std::vector<float>> result;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float* row = output.logits_of(static_cast<int>(i));
    result.emplace_back(row, row + output.vocabulary);
  }
  return result;
}

TEST_P(Golden, ReferenceMeetsLogitsAndArgmaxes) {
  REQUIRE_MODEL(path, GetParam().gguf);
  const auto backend = make_backend({.name = "reference"});
  const LoadedModel loaded = load_model(path, *backend, 2048);
  for (const auto& prompt : values()["generation"]) {
    auto tokens = prompt["prompt_ids"].get<std::vector<int32_t>>();
    const auto answer = prompt["greedy_ids_eos_suppressed"].get<std::vector<int32_t>>();
    const int last = static_cast<int>(tokens.size()) - 1;
    tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
    const auto logits = logits_of(*loaded.model, *backend, tokens, last);

    const auto top_ids = prompt["first_top20_ids"].get<std::vector<int32_t>>();
    const auto top_logits = prompt["first_top20_logits"].get<std::vector<double>>();
    for (size_t i = 0; i < top_ids.size(); ++i) {
      EXPECT_NEAR(logits[0][static_cast<size_t>(top_ids[i])], top_logits[i], kLogitTolerance)
          << prompt["kind"] << " token " << top_ids[i];
    }
    const double logsumexp = negative_log_likelihood(logits[0], top_ids[0]) +
                             static_cast<double>(logits[0][static_cast<size_t>(top_ids[0])]);
    EXPECT_NEAR(logsumexp, prompt["first_logsumexp"].get<double>(), kLogitTolerance);

    const auto argmax = prompt["teacher_forced_argmax"].get<std::vector<int32_t>>();
    const auto margin = prompt["top2_margin"].get<std::vector<double>>();
    for (size_t i = 0; i < argmax.size(); ++i) {
      if (margin[i] <= kLogitTolerance) continue;
      const auto best = std::max_element(logits[i].begin(), logits[i].end());
      EXPECT_EQ(best - logits[i].begin(), argmax[i]) << prompt["kind"] << " position " << i;
    }
  }
}

std::vector<int32_t> golden_text(const Tokenizer& tokenizer, const std::filesystem::path& path,
                                 size_t tokens) {
  std::ifstream in(path, std::ios::binary);
  std::string text(60000, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  auto ids = tokenizer.encode(text, SpecialText::parsed);
  ids.resize(std::min(ids.size(), tokens));
  return ids;
}

TEST_P(Golden, ReferencePerplexity) {
  REQUIRE_MODEL(path, GetParam().gguf);
  REQUIRE_DATA(text, "wikitext-2/valid.txt");
  const auto backend = make_backend({.name = "reference"});
  const LoadedModel loaded = load_model(path, *backend, 1024);
  const auto golden = values()["perplexity"];
  const auto ids = golden_text(*loaded.tokenizer, text, 4096);
  const auto first = golden["first_ids"].get<std::vector<int32_t>>();
  ASSERT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
  const Perplexity measured = measure_perplexity(*loaded.model, *backend, ids, {.chunk = 1024});
  EXPECT_EQ(measured.scored, golden["tokens_scored"].get<int>());
  EXPECT_NEAR(measured.perplexity / golden["ppl"].get<double>(), 1.0, 1e-3);
}

TEST_P(Golden, CpuPerplexityAndArgmaxRate) {
  REQUIRE_MODEL(path, GetParam().gguf);
  REQUIRE_DATA(text, "wikitext-2/valid.txt");
  const auto backend = make_backend({.name = "cpu"});
  const LoadedModel loaded = load_model(path, *backend, 1024);
  const auto golden = values();
  const auto ids = golden_text(*loaded.tokenizer, text, 4096);
  const Perplexity measured = measure_perplexity(*loaded.model, *backend, ids, {.chunk = 1024});
  EXPECT_NEAR(measured.perplexity / golden["perplexity"]["ppl"].get<double>(), 1.0, 5e-3);

  int same = 0, positions = 0;
  for (const auto& prompt : golden["generation"]) {
    auto tokens = prompt["prompt_ids"].get<std::vector<int32_t>>();
    const auto answer = prompt["greedy_ids_eos_suppressed"].get<std::vector<int32_t>>();
    const int last = static_cast<int>(tokens.size()) - 1;
    tokens.insert(tokens.end(), answer.begin(), answer.end() - 1);
    const auto logits = logits_of(*loaded.model, *backend, tokens, last);
    const auto argmax = prompt["teacher_forced_argmax"].get<std::vector<int32_t>>();
    for (size_t i = 0; i < argmax.size(); ++i, ++positions) {
      same += std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin() == argmax[i];
    }
  }
  std::printf("%s: perplexity %.4f (float32: %.4f), argmax equal at %d of %d positions\n",
              GetParam().name, measured.perplexity, golden["perplexity"]["ppl"].get<double>(), same,
              positions);
  EXPECT_GE(same, positions * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(kModels), [](const auto& instance) {
  std::string name = instance.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace coppice
