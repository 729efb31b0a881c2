// Time of one draw from a row of logits: the greedy and coupled fast paths and the filters, at the
// vocabularies of SmolLM2 (49152) and Qwen2.5 (151936).
//
//   build/release/bench/sampling_bench --benchmark_filter=coupled
#include <benchmark/benchmark.h>

#include <vector>

#include "core/sampling.h"
#include "kernels/shared/gumbel.h"

namespace coppice {
namespace {

/// Gumbel-shaped logits with a scale a language model has: few likely tokens, a long tail.
std::vector<float> model_like_logits(int vocabulary) {
  std::vector<float> logits;
  for (int i = 0; i < vocabulary; ++i) {
    logits.push_back(1.5f * static_cast<float>(gumbel(target_noise({1, 0}, 0, i))));
  }
  return logits;
}

void draw(benchmark::State& state, const SamplingParams& params) {
  const int vocabulary = static_cast<int>(state.range(0));
  const std::vector<float> logits = model_like_logits(vocabulary);
  Sampler sampler(params, vocabulary, {});
  std::vector<int32_t> history(100, 7);
  int position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.coupled(logits, {history, {}}, position++));
  }
}

void probabilities(benchmark::State& state) {
  const int vocabulary = static_cast<int>(state.range(0));
  const std::vector<float> logits = model_like_logits(vocabulary);
  Sampler sampler({.temperature = 1.0f}, vocabulary, {});
  for (auto _ : state) benchmark::DoNotOptimize(sampler.probabilities(logits, {}).data());
}

void log_probabilities(benchmark::State& state) {
  const std::vector<float> logits = model_like_logits(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(raw_log_probabilities(logits, 5, 5));
  }
}

const SamplingParams kGreedy{};
const SamplingParams kPenalised{.repetition_penalty = 1.1f};
const SamplingParams kCoupled{.temperature = 1.0f};
const SamplingParams kTopK{.temperature = 1.0f, .top_k = 40};
const SamplingParams kTopP{.temperature = 1.0f, .top_p = 0.95f};
const SamplingParams kMinP{.temperature = 1.0f, .min_p = 0.1f};

void sizes(benchmark::internal::Benchmark* b) {
  b->Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(draw, greedy, kGreedy)->Apply(sizes);
BENCHMARK_CAPTURE(draw, greedy_penalised, kPenalised)->Apply(sizes);
BENCHMARK_CAPTURE(draw, coupled, kCoupled)->Apply(sizes);
BENCHMARK_CAPTURE(draw, coupled_top_k_40, kTopK)->Apply(sizes);
BENCHMARK_CAPTURE(draw, coupled_top_p_095, kTopP)->Apply(sizes);
BENCHMARK_CAPTURE(draw, coupled_min_p_01, kMinP)->Apply(sizes);
BENCHMARK(probabilities)->Apply(sizes);
BENCHMARK(log_probabilities)->Apply(sizes);

}  // namespace
}  // namespace coppice

BENCHMARK_MAIN();
