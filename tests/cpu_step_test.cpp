// What the cpu backend promises beyond the contract that kernel_test and row_invariance_test hold
// every backend to: a steady step allocates nothing, long contexts give the same bits however the
// threads cut them, and vector width changes no bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "tests/attention_cases.h"
#include "tests/backend_cases.h"
#include "tests/random_tensors.h"

namespace {
std::atomic<int> allocations{0};
}

// Every form that a step could use ends in these. Not inlined: g++ 12 would warn of a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace coppice::test {
namespace {

class CpuStepTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Backend> make(int threads) const {
    return make_backend({"cpu", threads, GetParam()});
  }
};

/// A small layer and what surrounds it, over `rows` rows after `committed` keys.
class SmallStep {
 public:
  static constexpr int kDim = 96;
  static constexpr AttentionShape kShape{.heads = 3, .kv_heads = 1, .head_dim = 32};

  SmallStep(Backend& backend, int rows, int committed)
      : rig_(backend, kShape, (committed + rows) / kPageSlots + 1) {
    Rng rng(3);
    const auto pack = [&](int outputs, int inputs, DType type) {
      const Tensor tensor(type, outputs, inputs, rng);
      return backend.pack({&tensor.view, 1}, Stacking::concatenated);
    };
    table_ = pack(200, kDim, DType::q8_0);
    qkv_ = pack(rig_.width(), kDim, DType::q4_1);
    out_ = pack(kDim, rig_.out_width(), DType::f16);
    x_.resize(static_cast<size_t>(rows) * kDim);
    y_ = rng.normals(x_.size());
    norm_ = rng.normals(kDim);
    logits_.resize(static_cast<size_t>(rows) * 200);
    index_.resize(static_cast<size_t>(rows) * 5);
    value_.resize(index_.size());
    tokens_.assign(static_cast<size_t>(rows), 7);

    const Tree tree = random_tree(committed + rows, 0, rig_.width(), rng);
    rig_.tree_rows(tree, {.committed = committed, .prefix = committed}, rng);
    AttentionStep& step = rig_.last_step();
    Attention attention = rig_.op(step);
    attention.qkv = step.qkv.data();

    Embed embed{.table = table_.get(), .token = tokens_.data(), .rows = rows, .out = x_.data()};
    Linear qkv{.weight = qkv_.get(), .x = x_.data(), .x_stride = kDim, .rows = rows};
    qkv.norm = norm_.data();
    qkv.y = step.qkv.data();
    qkv.y_stride = rig_.width();
    Linear out{.weight = out_.get(), .x = step.out.data(), .x_stride = rig_.out_width()};
    out.rows = rows;
    out.accumulate = true;
    out.y = x_.data();
    out.y_stride = kDim;
    AddNorm add{y_.data(), norm_.data(), 1e-5f, rows, kDim, x_.data()};
    Copy copy{x_.data(), kDim, rows, kDim, y_.data(), kDim};
    Linear logits{.weight = table_.get(), .x = x_.data(), .x_stride = kDim, .rows = rows};
    logits.norm = norm_.data();
    logits.y = logits_.data();
    logits.y_stride = 200;
    TopK top{logits_.data(), 200, rows, 200, 5, index_.data(), value_.data()};
    MoveKv move{attention.kv, 1, &attention.row[0].slot, &attention.row[0].slot};
    ops_ = {embed, qkv, attention, out, add, copy, logits, top, move};
  }

  std::span<const Op> ops() const { return ops_; }
  const std::vector<float>& logits() const { return logits_; }

 private:
  AttentionRig rig_;
  std::unique_ptr<Weight> table_, qkv_, out_;
  std::vector<float> x_, y_, norm_, logits_, value_;
  std::vector<int32_t> index_, tokens_;
  std::vector<Op> ops_;
};

TEST_P(CpuStepTest, SteadyStepAllocatesNothing) {
  for (int threads : {1, 2, 3}) {
    const auto backend = make(threads);
    SmallStep large(*backend, 70, 300);
    SmallStep one(*backend, 1, 600);
    SmallStep few(*backend, 5, 40);
    for (const SmallStep* step : {&large, &one, &few}) backend->run(step->ops());
    const int before = allocations;
    for (int i = 0; i < 20; ++i) {
      for (const SmallStep* step : {&one, &few, &large, &one}) backend->run(step->ops());
    }
    EXPECT_EQ(allocations - before, 0) << threads << " threads";
  }
}

TEST_P(CpuStepTest, ThreadCountLeavesTheBits) {
  for (const auto& [rows, committed] : {std::pair{1, 40}, {1, 1100}, {3, 700}, {40, 300}}) {
    std::vector<float> expected;
    for (int threads : {1, 2, 3, 5}) {
      const auto backend = make(threads);
      SmallStep step(*backend, rows, committed);
      backend->run(step.ops());
      if (expected.empty()) expected = step.logits();
      EXPECT_TRUE(
          std::memcmp(expected.data(), step.logits().data(), expected.size() * sizeof(float)) == 0)
          << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_P(CpuStepTest, LongTreeIsItsRowsAlone) {
  for (int threads : {1, 3}) {
    const auto backend = make(threads);
    AttentionRig rig(*backend, {.heads = 4, .kv_heads = 2, .head_dim = 16}, 11);
    Rng rng(11);
    const Tree tree = random_tree(300, 20, rig.width(), rng);
    const auto alone = rig.rows_alone(tree);
    const auto together = rig.tree_rows(tree,
                                        {
                                            .committed = 515,
                                            .prefix = 515,
                                            .scattered = true,
                                        },
                                        rng);
    EXPECT_TRUE(alone == together) << threads << " threads";
  }
}

/// More than the design promises: whatever their vectors' width, targets that fuse multiply-add
/// give one text. Highway's scalar code rounds twice.
TEST(CpuStep, FusingTargetsAgreeToTheBit) {
  std::vector<float> expected;
  for (const BackendCase& each : backend_cases()) {
    if (each.backend != "cpu" || each.target == "scalar") continue;
    const auto backend = make_backend({"cpu", 2, each.target});
    SmallStep step(*backend, 9, 700);
    backend->run(step.ops());
    if (expected.empty()) expected = step.logits();
    EXPECT_TRUE(expected == step.logits()) << each.target;
  }
}

std::vector<std::string> cpu_targets() {
  std::vector<std::string> names;
  for (const BackendCase& each : backend_cases()) {
    if (each.backend == "cpu") names.push_back(each.target);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Targets, CpuStepTest, testing::ValuesIn(cpu_targets()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace coppice::test
