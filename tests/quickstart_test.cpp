// Losslessness on a real model: every method of the quickstart gives the baseline's text, token for
// token, on every prompt of it, greedy and (coupled) at temperature 1; Qwen's small model drafts
// for its larger one.
#include <gtest/gtest.h>

#include "experiments/bench_config.h"
#include "experiments/decoder.h"
#include "experiments/workload.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

std::vector<std::vector<int32_t>> decode(const MethodSpec& spec, const LoadedModel& target,
                                         const LoadedModel* draft, Backend& backend,
                                         std::span<const Prompt> prompts, float temperature,
                                         int max_new_tokens, int batch) {
  Decoder decoder(spec, target, draft, backend, {.sequences = batch, .context = 1024}, temperature);
  const auto stops = target.tokenizer->stop_ids();
  std::vector<RequestId> ids;
  for (const Prompt& prompt : prompts) {
    Request request;
    request.prompt = prompt.ids;
    request.sampling.temperature = temperature;
    request.sampling.request = prompt.request;
    request.stop.tokens.assign(stops.begin(), stops.end());
    request.stop.max_new_tokens = max_new_tokens;
    ids.push_back(decoder.engine().submit(std::move(request)));
  }
  while (decoder.engine().step()) {
  }
  std::vector<std::vector<int32_t>> answers;
  for (RequestId id : ids) answers.push_back(decoder.engine().answer(id).ids);
  return answers;
}

std::vector<Prompt> prompts_of(const BenchConfig& config, const Tokenizer& tokenizer) {
  std::vector<Prompt> prompts =
      pick_prompts(builtin_prompts(), config.bench.categories, config.bench.prompts_per_category);
  encode_prompts(prompts, tokenizer, false);
  return prompts;
}

void expect_lossless(const std::string& backend_name, size_t most_prompts, int max_new_tokens) {
  REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const BenchConfig config = read_bench_config(
      std::filesystem::path(COPPICE_SOURCE_DIR) / "configs" / "quickstart.toml", {});
  const auto backend = make_backend({.name = backend_name});
  const LoadedModel target = load_model(path, *backend);
  std::vector<Prompt> prompts = prompts_of(config, *target.tokenizer);
  ASSERT_EQ(prompts.size(), 24u);
  prompts.resize(std::min(prompts.size(), most_prompts));
  for (float temperature : {0.0f, 1.0f}) {
    const auto expected =
        decode({}, target, nullptr, *backend, prompts, temperature, max_new_tokens, 1);
    for (const MethodConfig& method : config.methods) {
      MethodSpec spec = method.spec;
      spec.rule = "";  // greedy, or coupled above temperature 0
      const auto answers =
          decode(spec, target, nullptr, *backend, prompts, temperature, max_new_tokens, 4);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(answers[i], expected[i])
            << method.name << ", " << prompts[i].id << ", temperature " << temperature;
      }
    }
  }
}

TEST(Quickstart, CpuTextsAreTheBaselines) {
  expect_lossless("cpu", 24, 64);
}
TEST(Quickstart, ReferenceTextsAreTheBaselines) {
  expect_lossless("reference", 2, 12);
}

TEST(DraftModel, QwenDraftsForItsLargerSister) {
  REQUIRE_MODEL(target_path, "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf");
  REQUIRE_MODEL(draft_path, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  const auto backend = make_backend({.name = "cpu"});
  const LoadedModel target = load_model(target_path, *backend, 1024);
  const LoadedModel draft = load_model(draft_path, *backend, 1024);
  std::vector<Prompt> prompts =
      pick_prompts(builtin_prompts(), std::vector<std::string>{"code"}, 2);
  encode_prompts(prompts, *target.tokenizer, false);
  for (float temperature : {0.0f, 1.0f}) {
    const auto expected = decode({}, target, nullptr, *backend, prompts, temperature, 24, 1);
    EXPECT_EQ(
        decode({.method = "draft_model"}, target, &draft, *backend, prompts, temperature, 24, 2),
        expected);
  }
}

}  // namespace
}  // namespace coppice
