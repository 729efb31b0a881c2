// A step of a real model (SmolLM2-135M-Instruct, Q4_1) by context and rows, and where its time
// goes: matrix products (with the norm and quantisation before them), attention, all else. First a
// row's logits are compared with the same row's among others.
//
//   COPPICE_MODELS=... step_bench --benchmark_filter='context:64/rows:1/' [TARGET]
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>

#include "core/model.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

constexpr int kMostRows = 512;
constexpr int kMostContext = 4096;

/// A backend that, when asked to, runs the ops one by one and adds up the time of each kind.
class TimedBackend : public Backend {
 public:
  explicit TimedBackend(std::unique_ptr<Backend> backend)
      : Backend(backend->ranks()), backend_(std::move(backend)) {}

  std::string describe() const override { return backend_->describe(); }
  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share share) override {
    return backend_->pack(parts, stacking, share);
  }
  Buffer allocate(size_t bytes) override { return backend_->allocate(bytes); }
  void run(std::span<const Op> ops) override {
    if (!one_by_one) return backend_->run(ops);
    for (const Op& op : ops) {
      const auto start = std::chrono::steady_clock::now();
      backend_->run({&op, 1});
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      seconds[std::holds_alternative<Linear>(op)      ? "linear"
              : std::holds_alternative<Attention>(op) ? "attention"
                                                      : "other"] += taken.count();
    }
  }

  bool one_by_one = false;
  std::map<std::string, double> seconds;

 private:
  std::unique_ptr<Backend> backend_;
};

/// One sequence of a model, and rows at its end that are computed and forgotten again.
class Steps {
 public:
  Steps(const ModelSource& source, TimedBackend& backend)
      : model_(source, backend),
        workspace_(model_, backend, {.rows = kMostRows, .logit_rows = kMostRows}),
        cache_(backend, model_.kv_shapes(), (kMostContext + kMostRows) / kPageSlots + 1),
        sequence_(cache_.open()) {}

  void set_context(int context) {
    cache_.truncate(sequence_, std::min(context, cache_.committed(sequence_)));
    while (cache_.committed(sequence_) < context) {
      const int rows = std::min(kMostRows, context - cache_.committed(sequence_));
      auto tail = cache_.reserve(sequence_, rows);
      forward(rows, 1);
      cache_.commit_all(std::move(*tail));
    }
  }

  /// A chain of `rows` rows, all of whose logits are wanted; the cache forgets them.
  ForwardOutput step(int rows) {
    const auto tail = cache_.reserve(sequence_, rows);
    return forward(rows, rows);
  }

  size_t weight_bytes() const { return model_.weight_bytes(); }

 private:
  ForwardOutput forward(int rows, int logit_rows) {
    const int committed = cache_.committed(sequence_);
    token_.resize(static_cast<size_t>(rows));
    parent_.resize(token_.size());
    for (int r = 0; r < rows; ++r) token_[static_cast<size_t>(r)] = 1000 + 7 * (committed + r);
    std::iota(parent_.begin(), parent_.end(), -1);
    wanted_.resize(static_cast<size_t>(logit_rows));
    std::iota(wanted_.begin(), wanted_.end(), rows - logit_rows);
    const SequenceRows sequence{0, rows, committed, cache_.pages(sequence_)};
    ForwardBatch batch;
    batch.token = token_;
    batch.parent = parent_;
    batch.sequences = {&sequence, 1};
    batch.logit_rows = wanted_;
    return model_.forward(batch, cache_, workspace_);
  }

  Model model_;
  Workspace workspace_;
  KVCache cache_;
  SeqId sequence_;
  std::vector<int32_t> token_, parent_, wanted_;
};

bool same_logits_among_others(Steps& steps) {
  steps.set_context(100);
  const ForwardOutput alone = steps.step(1);
  const std::vector<float> expected(alone.logits.begin(), alone.logits.end());
  return std::memcmp(steps.step(9).logits_of(0), expected.data(),
                     expected.size() * sizeof(float)) == 0;
}

void step(benchmark::State& state, Steps& steps, TimedBackend& backend) {
  const auto rows = static_cast<int>(state.range(1));
  steps.set_context(static_cast<int>(state.range(0)));
  steps.step(rows);
  for (auto _ : state) steps.step(rows);
  state.SetItemsProcessed(state.iterations() * rows);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(steps.weight_bytes()));

  backend.one_by_one = true;
  backend.seconds.clear();
  const int repeats = rows <= 16 ? 10 : 1;
  for (int i = 0; i < repeats; ++i) steps.step(rows);
  backend.one_by_one = false;
  for (const auto& [kind, seconds] : backend.seconds) {
    state.counters[kind + "_ms"] = seconds * 1e3 / repeats;
  }
}

/// A prompt of so many tokens, in chunks of kMostRows, the last token's logits alone.
void prefill(benchmark::State& state, Steps& steps) {
  for (auto _ : state) {
    steps.set_context(0);
    steps.set_context(static_cast<int>(state.range(0)));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  using namespace coppice;
  benchmark::Initialize(&argc, argv);
  const char* name = "SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto path = test::model_file(name);
  if (!path) {
    std::fprintf(stderr, "%s is absent; set COPPICE_MODELS to the folder that has it\n", name);
    return 1;
  }
  TimedBackend backend(make_backend({"cpu", 0, argc > 1 ? argv[1] : ""}));
  const GgufFile file(*path);
  Steps steps(read_model(file), backend);
  if (!same_logits_among_others(steps)) {
    std::fprintf(stderr, "a row's logits are not the same alone and among others\n");
    return 1;
  }
  std::printf("%s\n", backend.describe().c_str());
  benchmark::RegisterBenchmark("step",
                               [&](benchmark::State& state) { step(state, steps, backend); })
      ->ArgNames({"context", "rows"})
      ->ArgsProduct({{64, 512, kMostContext}, {1, 2, 4, 8, 16, 64, kMostRows}})
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RegisterBenchmark("prefill", [&](benchmark::State& state) { prefill(state, steps); })
      ->ArgName("tokens")
      ->ArgsProduct({{64, 512, kMostContext}})
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
}
