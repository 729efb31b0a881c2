// The functions over a row of logits, on the vocabularies of SmolLM2 (49152) and Qwen2.5 (151936).
// First gumbel_argmax is compared with its definition, whose time is the line "plain".
//
//   vocabulary_bench --benchmark_filter=gumbel
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/vocabulary.h"
#include "kernels/shared/gumbel.h"

namespace coppice {
namespace {

constexpr NoiseKey kKey{.seed = 12345, .request = 6};

/// Like a model's: a wide bulk, a few tokens that stand out.
std::vector<float> logits(int n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  for (int i = 0; i < 20; ++i) x[random() % x.size()] += 8.0f;
  return x;
}

int32_t plain_gumbel_argmax(const std::vector<float>& x, int position) {
  int32_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (int32_t i = 0; i < static_cast<int32_t>(x.size()); ++i) {
    const double score =
        coupled_score(x[static_cast<size_t>(i)], 1.0, target_noise(kKey, position, i));
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

/// Runs `function(row, position)` and counts the logits that it goes through.
template <class Function>
void over_rows(benchmark::State& state, Function function) {
  const auto x = logits(static_cast<int>(state.range(0)));
  int position = 0;
  for (auto _ : state) benchmark::DoNotOptimize(function(x, position++));
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

void argmax(benchmark::State& state) {
  over_rows(state, [](const auto& x, int) { return cpu::argmax(x); });
}
void gumbel(benchmark::State& state) {
  over_rows(state, [](const auto& x, int p) { return cpu::gumbel_argmax(x, 1.0, kKey, p); });
}
void gumbel_plain(benchmark::State& state) {
  over_rows(state, [](const auto& x, int p) { return plain_gumbel_argmax(x, p); });
}
void top_k(benchmark::State& state) {
  const auto k = static_cast<int>(state.range(1));
  std::vector<int32_t> index(static_cast<size_t>(k));
  std::vector<float> value(index.size());
  over_rows(state, [&](const auto& x, int) {
    cpu::top_k(x, k, index.data(), value.data());
    return index[0];
  });
}

BENCHMARK(argmax)->Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond);
BENCHMARK(gumbel)->Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond);
BENCHMARK(gumbel_plain)->Arg(49152)->Arg(151936)->Unit(benchmark::kMicrosecond);
BENCHMARK(top_k)->ArgsProduct({{49152, 151936}, {1, 10, 64}})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  using namespace coppice;
  benchmark::Initialize(&argc, argv);
  const auto x = logits(49152);
  for (int position = 0; position < 50; ++position) {
    const int32_t got = cpu::gumbel_argmax(x, 1.0, kKey, position);
    const int32_t expected = plain_gumbel_argmax(x, position);
    if (got == expected) continue;
    std::fprintf(stderr, "position %d: token %d, by the definition %d\n", position, got, expected);
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
