// What n rows of matrix products cost, for each instruction set: every product of a step of
// SmolLM2-135M (Q4_1, output layer Q8_0) or of Qwen2.5-1.5B's layers (Q4_K, Q6_K), weights in the
// order of a step so that no cache flatters. Each set is compared with the oracle before it is
// timed.
//
//   products_bench --benchmark_repetitions=5 --benchmark_filter='smollm2/avx2/.*/threads:2'
#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "kernels/cpu/products.h"
#include "tests/products_oracle.h"
#include "tests/random_weights.h"

namespace coppice {
namespace {

using cpu::Activations;
using cpu::FloatBlock;
using cpu::IntegerBlock;
using cpu::PackedWeight;
using cpu::ProductKernels;
using test::RandomWeight;

void serial_for(int count, const std::function<void(int)>& body) {
  for (int i = 0; i < count; ++i) body(i);
}

struct Layer {
  std::unique_ptr<PackedWeight> weight;
  Activation activation = Activation::none;
  bool accumulate = false;
};

struct Model {
  std::shared_ptr<cpu::PanelMemory> memory = std::make_shared<cpu::PanelMemory>();
  std::vector<Layer> layers;
  size_t bytes = 0;
  double values = 0.0;
  int widest_input = 0;
  int widest_output = 0;

  void add(std::initializer_list<std::pair<DType, int>> parts, int inputs, Stacking stacking,
           Activation activation, bool accumulate) {
    std::vector<RandomWeight> weights;
    std::vector<TensorView> views;
    for (const auto& [type, outputs] : parts) {
      weights.emplace_back(type, outputs, inputs, weights.size() + 1);
      values += double{1} * outputs * inputs;
    }
    for (const RandomWeight& w : weights) views.push_back(w.view);
    layers.push_back({std::make_unique<PackedWeight>(views, stacking, memory, serial_for),
                      activation, accumulate});
    bytes += layers.back().weight->bytes;
    widest_input = std::max(widest_input, inputs);
    widest_output = std::max(widest_output, layers.back().weight->outputs);
  }

  void add_block(DType type, DType v_type, DType down_type, int dim, int q, int kv, int ffn) {
    constexpr auto kNone = Activation::none;
    add({{type, q}, {type, kv}, {v_type, kv}}, dim, Stacking::concatenated, kNone, false);
    add({{type, dim}}, q, Stacking::concatenated, kNone, true);
    add({{type, ffn}, {type, ffn}}, dim, Stacking::gated, Activation::silu, false);
    add({{down_type, dim}}, ffn, Stacking::concatenated, kNone, true);
  }
};

const Model& smollm2() {
  static const Model model = [] {
    Model m;
    for (int i = 0; i < 30; ++i) {
      m.add_block(DType::q4_1, DType::q4_1, DType::q4_1, 576, 576, 192, 1536);
    }
    m.add({{DType::q8_0, 49152}}, 576, Stacking::concatenated, Activation::none, false);
    return m;
  }();
  return model;
}

/// Six of the 28 layers: three times the last-level cache share of most machines, packed in
/// seconds.
const Model& qwen2() {
  static const Model model = [] {
    Model m;
    for (int i = 0; i < 6; ++i) {
      const DType better = i % 2 == 0 ? DType::q6_k : DType::q4_k;
      m.add_block(DType::q4_k, better, better, 1536, 1536, 256, 8960);
    }
    return m;
  }();
  return model;
}

template <class T>
std::unique_ptr<T, void (*)(void*)> aligned(size_t bytes) {
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  std::memset(memory, 0, bytes);
  return {static_cast<T*>(memory), std::free};
}

struct Rows {
  Rows(const ProductKernels& kernels, int rows, int inputs)
      : integers(aligned<IntegerBlock>(cpu::integer_bytes(rows, inputs))),
        floats(aligned<FloatBlock>(cpu::float_bytes(rows, inputs))),
        x(static_cast<size_t>(rows) * static_cast<size_t>(inputs)) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(random);
    activations = {rows, inputs, integers.get(), floats.get()};
    for (int r = 0; r < rows; ++r) {
      kernels.quantise(x.data() + static_cast<size_t>(r) * static_cast<size_t>(inputs), r, 0,
                       cpu::block_count(inputs), activations);
    }
  }
  std::unique_ptr<IntegerBlock, void (*)(void*)> integers;
  std::unique_ptr<FloatBlock, void (*)(void*)> floats;
  std::vector<float> x;
  Activations activations;
};

/// Ends the program when a set's product of any type is not the oracle's.
void compare_with_oracle(const ProductKernels& kernels) {
  constexpr int kOutputs = 33, kInputs = 512, kRows = 17;
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                     DType::q5_1, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    const RandomWeight w(type, kOutputs, kInputs, 3);
    const PackedWeight packed({&w.view, 1}, Stacking::concatenated,
                              std::make_shared<cpu::PanelMemory>(), serial_for);
    const Rows rows(kernels, kRows, kInputs);
    std::vector<float> y(kRows * kOutputs);
    kernels.multiply(packed.panels(), rows.activations, 0, packed.panels().count, {}, y.data(),
                     kOutputs);
    for (int r = 0; r < kRows; ++r) {
      for (int o = 0; o < kOutputs; ++o) {
        const auto expected =
            test::expected_product(w.view, o, rows.x.data() + static_cast<size_t>(r) * kInputs);
        const double got = double{y[static_cast<size_t>(r * kOutputs + o)]};
        if (!(std::fabs(got - expected.value) <= expected.bound)) {
          std::fprintf(stderr, "%s %s: row %d output %d is %g, not %g +- %g\n", kernels.name,
                       std::string(traits(type).name).c_str(), r, o, got, expected.value,
                       expected.bound);
          std::exit(1);
        }
      }
    }
  }
}

void pin(pthread_t thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(thread, sizeof(set), &set);
}

/// body(thread) on each of `threads` pinned threads, the caller's among them.
template <class Body>
void on_threads(int threads, const Body& body) {
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) {
    others.emplace_back([&body, t] { body(t); });
    pin(others.back().native_handle(), t);
  }
  pin(pthread_self(), 0);
  body(0);
}

void time_products(benchmark::State& state, const ProductKernels& kernels, const Model& model) {
  const int rows = static_cast<int>(state.range(0)), threads = static_cast<int>(state.range(1));
  std::vector<std::unique_ptr<Rows>> inputs(static_cast<size_t>(model.widest_input) + 1);
  for (const Layer& layer : model.layers) {
    auto& prepared = inputs[static_cast<size_t>(layer.weight->inputs)];
    if (!prepared) prepared = std::make_unique<Rows>(kernels, rows, layer.weight->inputs);
  }
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(model.widest_output));
  for (auto _ : state) {
    on_threads(threads, [&](int t) {
      for (const Layer& layer : model.layers) {
        const cpu::Panels& panels = layer.weight->panels();
        kernels.multiply(panels, inputs[static_cast<size_t>(panels.inputs)]->activations,
                         panels.count * t / threads, panels.count * (t + 1) / threads,
                         {nullptr, layer.activation, layer.accumulate}, y.data(),
                         layer.weight->outputs);
      }
    });
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const auto steps = static_cast<double>(state.iterations());
  state.counters["bytes/s"] = Counter(static_cast<double>(model.bytes) * steps, Counter::kIsRate);
  state.counters["ops/s"] = Counter(2.0 * model.values * rows * steps, Counter::kIsRate);
  state.counters["rows/s"] = Counter(rows * steps, Counter::kIsRate);
}

/// The limit: the same threads only read the model's panels, and sum them.
void time_reading(benchmark::State& state, const Model& model) {
  const int threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    on_threads(threads, [&](int t) {
      uint64_t sums[16] = {};
      for (const Layer& layer : model.layers) {
        const auto* data = reinterpret_cast<const uint64_t*>(layer.weight->panels().parts[0].data);
        const size_t words = layer.weight->bytes / sizeof(uint64_t) / 16 * 16;
        const auto part = [&](int i) {
          return words / 16 * static_cast<size_t>(i) / static_cast<size_t>(threads) * 16;
        };
        for (size_t i = part(t); i < part(t + 1); i += 16) {
          __builtin_prefetch(data + i + 768, 0, 2);  // as far ahead as the products fetch
          __builtin_prefetch(data + i + 776, 0, 2);
          for (size_t j = 0; j < 16; ++j) sums[j] += data[i + j];
        }
      }
      benchmark::DoNotOptimize(sums);
    });
  }
  state.counters["bytes/s"] =
      benchmark::Counter(static_cast<double>(model.bytes) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

void settings(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMicrosecond)->UseRealTime()->DisplayAggregatesOnly();
  bench->ComputeStatistics("min", smallest);
}

void add_benchmarks() {
  const int cores = std::min(2, static_cast<int>(std::thread::hardware_concurrency()));
  auto* reading = benchmark::RegisterBenchmark(
      "read", [](benchmark::State& state) { time_reading(state, smollm2()); });
  for (int threads = 1; threads <= cores; ++threads) reading->Args({threads})->ArgName("threads");
  settings(reading);
  for (const ProductKernels* kernels : cpu::product_kernels()) {
    compare_with_oracle(*kernels);
    for (const auto& [name, model] : {std::pair("smollm2", &smollm2), {"qwen2", &qwen2}}) {
      auto* bench = benchmark::RegisterBenchmark((std::string(name) + "/" + kernels->name).c_str(),
                                                 [kernels, model = model](benchmark::State& state) {
                                                   time_products(state, *kernels, model());
                                                 });
      bench->ArgNames({"rows", "threads"});
      for (int threads = 1; threads <= cores; ++threads) {
        for (int rows : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}) bench->Args({rows, threads});
      }
      settings(bench);
    }
  }
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  coppice::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
}
