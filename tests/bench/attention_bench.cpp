// What attention costs by context and rows: one op a layer, over the KV of as many layers as a
// model has, so that no cache flatters. Heads as in SmolLM2-135M (9 of 64, 3 KV heads). First the
// cpu backend is compared with the reference over the same op.
//
//   attention_bench --benchmark_filter='context:4096/rows:1/' [TARGET]
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "kernels/base/dtype.h"
#include "tests/attention_cases.h"

namespace coppice {
namespace {

constexpr int kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr int kWidth = (kHeads + 2 * kKvHeads) * kHeadDim;

/// `rows` rows of one sequence at the end of `context` keys, in every layer of a cache: a chain, or
/// a tree in which row r hangs under row (r - 1) / 2.
class Layers {
 public:
  Layers(Backend& backend, int context, int rows, bool tree, int layers) {
    const int pages = (context + rows) / kPageSlots + 1;
    const size_t page_bytes = kv_page_bytes(kKvHeads, kHeadDim);
    memory_ = backend.allocate(page_bytes * pages * layers);
    test::Rng rng(5);
    const uint16_t values[] = {float_to_half(0.5f), float_to_half(-1.25f), float_to_half(0.03f)};
    for (size_t i = 0; i < memory_.bytes / sizeof(uint16_t); ++i) {
      memory_.as<uint16_t>()[i] = values[(i * 2654435761u >> 7) % 3];
    }
    qkv_ = rng.normals(static_cast<size_t>(rows) * kWidth);
    out_.resize(static_cast<size_t>(rows) * kHeads * kHeadDim);
    for (int p = 0; p < pages; ++p) pages_.push_back(p);
    for (int i = 0; i < (context + rows) * kHeadDim / 2; ++i) {
      rotary_.push_back(std::cos(static_cast<float>(i)));
      rotary_.push_back(std::sin(static_cast<float>(i)));
    }
    for (int r = 0; r < rows; ++r) add_row(context, r, tree);
    for (int l = 0; l < layers; ++l) {
      Attention op;
      op.qkv = qkv_.data();
      op.rows = rows;
      op.heads = kHeads;
      op.rotary = rotary_.data();
      op.scale = 0.125f;
      op.kv = {memory_.data.get() + page_bytes * pages * l, page_bytes, kKvHeads, kHeadDim};
      op.row = rows_.data();
      op.tail_slots = tail_slots_.data();
      op.pages = pages_.data();
      op.out = out_.data();
      ops_.push_back(op);
    }
  }

  std::span<const Op> ops() const { return ops_; }
  const std::vector<float>& out() const { return out_; }

 private:
  void add_row(int context, int r, bool tree) {
    AttentionRow row{.position = context + r, .slot = context + r, .prefix = context + r + 1};
    if (tree && r > 0) {
      std::vector<int32_t> path;
      for (int node = r; node > 0; node = (node - 1) / 2) path.insert(path.begin(), context + node);
      row.position = context + static_cast<int>(path.size());
      row.prefix = context + 1;
      row.tail = static_cast<int32_t>(tail_slots_.size());
      tail_slots_.insert(tail_slots_.end(), path.begin(), path.end());
    }
    rows_.push_back(row);
  }

  Buffer memory_;
  std::vector<float> qkv_, out_, rotary_;
  std::vector<int32_t> pages_, tail_slots_;
  std::vector<AttentionRow> rows_;
  std::vector<Op> ops_;
};

/// Ends the program when the two backends differ by more than rounding.
void compare_with_reference(Backend& cpu) {
  const auto reference = make_backend({"reference", 0, ""});
  for (const auto& [context, rows, tree] :
       {std::tuple{0, 1, false}, {63, 4, true}, {700, 33, false}, {700, 33, true}}) {
    const Layers ours(cpu, context, rows, tree, 1), theirs(*reference, context, rows, tree, 1);
    cpu.run(ours.ops());
    reference->run(theirs.ops());
    for (size_t i = 0; i < ours.out().size(); ++i) {
      if (std::abs(ours.out()[i] - theirs.out()[i]) < 1e-4f) continue;
      std::fprintf(stderr, "context %d, %d rows: output %zu is %g, the reference's %g\n", context,
                   rows, i, ours.out()[i], theirs.out()[i]);
      std::exit(1);
    }
  }
}

void attention(benchmark::State& state, Backend& backend) {
  const auto context = static_cast<int>(state.range(0));
  const auto rows = static_cast<int>(state.range(1));
  const bool tree = state.range(2) != 0;
  const int layers = rows <= 24 ? 30 : 4;
  const Layers work(backend, context, rows, tree, layers);
  for (auto _ : state) backend.run(work.ops());
  const double keys = context + (rows + 1) / 2.0;  // an average row's
  const double per_layer = static_cast<double>(state.iterations()) * layers;
  state.SetBytesProcessed(
      static_cast<int64_t>(per_layer * static_cast<double>(kv_page_bytes(kKvHeads, kHeadDim)) *
                           ((context + rows + kPageSlots - 1) / kPageSlots)));
  state.counters["ops/s"] =
      benchmark::Counter(per_layer * 4.0 * keys * rows * kHeads * kHeadDim,
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  state.counters["s/layer"] =
      benchmark::Counter(per_layer, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  using namespace coppice;
  benchmark::Initialize(&argc, argv);
  const auto backend = make_backend({"cpu", 0, argc > 1 ? argv[1] : ""});
  compare_with_reference(*backend);
  std::printf("%s\n", backend->describe().c_str());
  benchmark::RegisterBenchmark("attention",
                               [&](benchmark::State& state) { attention(state, *backend); })
      ->ArgNames({"context", "rows", "tree"})
      ->ArgsProduct({{64, 512, 4096}, {1, 2, 4, 8, 16, 24, 64, 512}, {0, 1}})
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
}
