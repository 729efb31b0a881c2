// The CUDA backend's kernels in emulation, beyond what every backend is held to (cuda_kernel_test,
// cuda_attention_test): the same bits for any number of rows, any layout and any order of threads;
// and that a kernel with a fault would not pass: each barrier dropped in turn, a page off by one, a
// wrong ancestor.
//
//   build/release/tests/cuda_kernels_test --gtest_filter='*Barrier*'
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/emulator.h"
#include "tests/attention_cases.h"
#include "tests/backend_cases.h"
#include "tests/oracle.h"

namespace coppice::test {
namespace {

const Precision kPrecision = precision_of("cuda_emulated");

std::unique_ptr<Backend> make_emulated() {
  return emulated_cuda_entry().make({.name = "cuda_emulated", .threads = 1, .target = "exact"});
}

/// Rows first..first+count-1 of x (.., inputs) through the weight.
std::vector<float> product(Backend& backend, const Weight& weight, const std::vector<float>& x,
                           int first, int count) {
  std::vector<float> y(static_cast<size_t>(count) * weight.outputs);
  Linear op{.weight = &weight, .x = x.data() + static_cast<size_t>(first) * weight.inputs};
  op.x_stride = weight.inputs;
  op.rows = count;
  op.y = y.data();
  op.y_stride = weight.outputs;
  const Op ops[] = {op};
  backend.run(ops);
  return y;
}

void expect_same_bits(const std::vector<float>& all, int first, const std::vector<float>& some,
                      int width) {
  const float* same = all.data() + static_cast<size_t>(first) * width;
  ASSERT_EQ(std::memcmp(some.data(), same, some.size() * sizeof(float)), 0);
}

// 2048 inputs are summed in two slices.
TEST(CudaKernels, ProductsDoNotDependOnTheNumberOfRows) {
  const auto backend = make_emulated();
  for (DType type : {DType::q4_k, DType::q6_k, DType::q8_0, DType::q5_1, DType::bf16}) {
    const int inputs = type == DType::q4_k ? 2048 : 256;
    SCOPED_TRACE(traits(type).name);
    Rng rng(71);
    const Tensor tensor(type, 37, inputs, rng);
    const auto weight = backend->pack({&tensor.view, 1}, Stacking::concatenated);
    const auto x = activation_rows(65, inputs, rng);
    const auto all = product(*backend, *weight, x, 0, 65);
    for (int count : {1, 2, 8, 9, 17, 33, 64}) {
      for (int first : {0, 65 - count}) {
        SCOPED_TRACE(fmt::format("{} rows from {}", count, first));
        expect_same_bits(all, first, product(*backend, *weight, x, first, count), 37);
      }
    }
  }
}

TEST(CudaKernels, EveryNumberOfRowsThatATreeHas) {
  const auto backend = make_emulated();
  Rng rng(80);
  const Tensor tensor(DType::q4_1, 20, 64, rng);
  const auto weight = backend->pack({&tensor.view, 1}, Stacking::concatenated);
  const auto x = activation_rows(64, 64, rng);
  Linear op{.weight = weight.get(), .x = x.data(), .x_stride = 64, .rows = 64};
  const auto expected = oracle::linear(op, {&tensor.view, 1}, false, kPrecision);
  for (int rows = 1; rows <= 64; ++rows) {
    SCOPED_TRACE(rows);
    const auto y = product(*backend, *weight, x, 0, rows);
    expect_within(std::span(expected).first(y.size()), y.data());
  }
}

// `fast` rounds weights and rows to bf16 for many rows, and is `exact` for few.
TEST(CudaKernels, FastModeIsNearForManyRows) {
  const auto exact = make_emulated();
  const auto fast = emulated_cuda_entry().make({"cuda_emulated", 1, "fast"});
  Rng rng(79);
  const Tensor gate(DType::q6_k, 37, 256, rng), up(DType::q4_1, 37, 256, rng);
  const TensorView views[] = {gate.view, up.view};
  const auto x = rng.normals(70 * 256);
  const auto norm = rng.normals(256);
  for (Stacking stacking : {Stacking::concatenated, Stacking::gated}) {
    for (int rows : {64, 70}) {
      std::vector<std::vector<float>> outputs;
      int width = 0;
      for (Backend* backend : {exact.get(), fast.get()}) {
        const auto weight = backend->pack(views, stacking);
        width = weight->outputs;
        std::vector<float> y(static_cast<size_t>(rows) * width, 1.0f);
        Linear op{.weight = weight.get(), .x = x.data(), .x_stride = 256, .rows = rows};
        op.norm = norm.data();
        op.norm_eps = 1e-6f;
        op.activation = Activation::silu;
        op.accumulate = true;
        op.y = y.data();
        op.y_stride = width;
        const Op ops[] = {op};
        backend->run(ops);
        outputs.push_back(y);
      }
      float largest = 0.0f, furthest = 0.0f;
      for (size_t i = 0; i < outputs[0].size(); ++i) {
        largest = std::max(largest, std::abs(outputs[0][i]));
        furthest = std::max(furthest, std::abs(outputs[0][i] - outputs[1][i]));
      }
      EXPECT_EQ(furthest > 0.0f, rows > 64);
      EXPECT_LT(furthest, 0.02f * largest);
    }
  }
}

TEST(CudaKernels, ARowThatIsNoNumberStaysAlone) {
  const auto backend = make_emulated();
  for (DType type : {DType::q4_1, DType::bf16}) {
    Rng rng(72);
    const Tensor tensor(type, 20, 96, rng);
    const auto weight = backend->pack({&tensor.view, 1}, Stacking::concatenated);
    auto x = rng.normals(5 * 96);
    const auto before = product(*backend, *weight, x, 0, 5);
    x[2 * 96 + 70] = std::nanf("");
    x[3 * 96 + 1] = INFINITY;
    const auto after = product(*backend, *weight, x, 0, 5);
    for (int r = 0; r < 5; ++r) {
      for (int c = 0; c < 20; ++c) {
        const float value = after[static_cast<size_t>(r * 20 + c)];
        if (r == 2 || r == 3) {
          ASSERT_FALSE(std::isfinite(value)) << r << ' ' << c;
        } else {
          ASSERT_EQ(value, before[static_cast<size_t>(r * 20 + c)]) << r << ' ' << c;
        }
      }
    }
  }
}

constexpr AttentionShape kShape{.heads = 3, .kv_heads = 1, .head_dim = 16};

TEST(CudaKernels, AttentionDoesNotDependOnTheLayout) {
  const auto backend = make_emulated();
  for (int chain : {1, 31, 33, 60}) {
    for (int window : {0, 33}) {
      AttentionShape shape = kShape;
      shape.window = window;
      Rng rng(static_cast<uint32_t>(73 + chain));
      AttentionRig alone(*backend, shape, 4);
      const Tree tree = random_tree(chain, 9, alone.width(), rng);
      const auto expected = alone.rows_alone(tree);
      const Layout layouts[] = {
          {},
          {.committed = chain, .prefix = chain},
          {.committed = chain, .prefix = chain / 2, .earlier_rows = 7, .scattered = true},
          {.committed = chain / 2, .prefix = chain / 3, .scattered = true, .neighbours = 2},
      };
      for (const Layout& layout : layouts) {
        SCOPED_TRACE(
            fmt::format("chain {} window {} committed {}", chain, window, layout.committed));
        AttentionRig rig(*backend, shape, 4, layout.neighbours + 1);
        expect_same_bits(expected, 0, rig.tree_rows(tree, layout, rng), rig.out_width());
      }
    }
  }
}

// Positions before and behind 256 are different ranges, whose sums are joined by another kernel;
// 520 keys are three. A step that ends before 256 needs no join, and must not show it.
TEST(CudaKernels, AttentionOverSeveralRanges) {
  const auto backend = make_emulated();
  const struct { int window, chain; } cases[] = {{0, 250}, {20, 520}, {300, 520}};
  for (const auto& [window, chain] : cases) {
    SCOPED_TRACE(fmt::format("window {} chain {}", window, chain));
    AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 16};
    shape.window = window;
    Rng rng(74);
    AttentionRig rig(*backend, shape, 18);
    const Tree tree = random_tree(chain, 12, rig.width(), rng);
    const auto at_once = rig.tree_rows(tree, {}, rng);
    const Attention op = rig.op(rig.last_step());
    const Op ops[] = {op};
    backend->run(ops);
    expect_within(oracle::attention(op, kPrecision), op.out);
    const Layout steps{.committed = chain, .prefix = chain, .earlier_rows = 50};
    expect_same_bits(at_once, 0, rig.tree_rows(tree, steps, rng), rig.out_width());
  }
}

TEST(CudaKernels, HeadsOf96AndManyQueryHeads) {
  const auto backend = make_emulated();
  const AttentionShape shapes[] = {{2, 1, 96, RotaryStyle::half_split, true, 0},
                                   {20, 1, 32, RotaryStyle::adjacent, false, 0}};
  for (const AttentionShape& shape : shapes) {
    Rng rng(75);
    AttentionRig rig(*backend, shape, 3);
    const Tree tree = random_tree(33, 6, rig.width(), rng);
    rig.tree_rows(tree, {.committed = 33, .prefix = 33}, rng);
    const std::vector<float> out = rig.last_step().out;
    expect_within(oracle::attention(rig.op(rig.last_step()), kPrecision), out.data());
  }
}

TEST(CudaKernels, HeadsWithoutAKernelAreRefused) {
  const auto backend = make_emulated();
  Rng rng(76);
  AttentionRig rig(*backend, {.heads = 1, .kv_heads = 1, .head_dim = 48}, 1);
  const Tree tree = random_tree(1, 0, rig.width(), rng);
  EXPECT_THROW(rig.tree_rows(tree, {}, rng), Error);
}

/// Every kind of op once, with slices of the inputs and ranges of keys; all that it wrote.
std::vector<float> every_kernel(Backend& backend) {
  Rng rng(77);
  std::vector<float> out;
  const auto keep = [&](const std::vector<float>& more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  const auto norm = rng.normals(2048), x = rng.normals(2048);
  std::vector<float> value(4);
  std::vector<int32_t> index(4);
  const Op top[] = {TopK{x.data(), 2048, 1, 2048, 4, index.data(), value.data()}};
  backend.run(top);
  keep(value);

  const Tensor long_rows(DType::q4_k, 20, 2048, rng), up(DType::q8_0, 40, 64, rng);
  const auto slices = backend.pack({&long_rows.view, 1}, Stacking::concatenated);
  keep(product(backend, *slices, rng.normals(2048), 0, 1));
  const TensorView pair[] = {up.view, up.view};
  const auto gated = backend.pack(pair, Stacking::gated);
  keep(product(backend, *gated, rng.normals(64), 0, 1));

  std::vector<float> normed(20), sum = rng.normals(2048);
  Linear with_norm{.weight = slices.get(), .x = x.data(), .x_stride = 2048, .rows = 1};
  with_norm.norm = norm.data();
  with_norm.y = normed.data();
  with_norm.y_stride = 20;
  const Op ops[] = {with_norm, AddNorm{x.data(), norm.data(), 1e-6f, 1, 2048, sum.data()}};
  backend.run(ops);
  keep(normed);
  keep(sum);

  AttentionRig rig(backend, {.heads = 1, .kv_heads = 1, .head_dim = 16}, 10);
  const Tree tree = random_tree(290, 3, rig.width(), rng);
  keep(rig.tree_rows(tree, {.committed = 260, .prefix = 260, .earlier_rows = 260}, rng));
  return out;
}

TEST(CudaKernels, AnyOrderOfThreadsGivesTheSameBits) {
  std::vector<float> first;
  for (int seed = 0; seed < 3; ++seed) {
    cuda::emulator::set_seed(static_cast<uint64_t>(seed));
    const auto out = every_kernel(*make_emulated());
    if (seed == 0) first = out;
    expect_same_bits(first, 0, out, 1);
  }
}

// Deliberate faults.

TEST(CudaKernels, EveryBarrierIsMissedWhenItIsDropped) {
  const std::vector<float> right = every_kernel(*make_emulated());
  for (const char* kernel : {"prepare", "multiply", "add_norm", "attend"}) {
    for (int index = 0;; ++index) {
      SCOPED_TRACE(fmt::format("{}, barrier {}", kernel, index));
      cuda::emulator::drop_barrier(kernel, index);
      bool caught = false;
      try {
        const auto out = every_kernel(*make_emulated());
        caught = std::memcmp(out.data(), right.data(), out.size() * sizeof(float)) != 0;
      } catch (const Failure&) {
        caught = true;
      }
      const int dropped = cuda::emulator::dropped_barriers();
      cuda::emulator::drop_barrier("", 0);
      if (dropped == 0) {
        EXPECT_FALSE(caught);
        EXPECT_GT(index, 0) << "a kernel without barriers";
        break;
      }
      EXPECT_TRUE(caught);
    }
  }
}

/// Whether an op whose tables are changed by `fault` leaves what the oracle finds from the right
/// ones.
template <class Fault>
bool passes_with(Fault fault) {
  const auto backend = make_emulated();
  Rng rng(78);
  AttentionRig rig(*backend, kShape, 4);
  const Tree tree = random_tree(40, 8, rig.width(), rng);
  rig.tree_rows(tree, {.committed = 40, .prefix = 40}, rng);
  AttentionStep& step = rig.last_step();
  const std::vector<Expected> expected = oracle::attention(rig.op(step), kPrecision);
  fault(step);
  const Op ops[] = {rig.op(step)};
  backend->run(ops);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!(std::abs(step.out[i] - expected[i].value) <= expected[i].bound)) return false;
  }
  return true;
}

TEST(CudaKernels, WrongTablesAreNotPassed) {
  EXPECT_TRUE(passes_with([](AttentionStep&) {}));
  EXPECT_FALSE(passes_with([](AttentionStep& step) { std::swap(step.pages[0], step.pages[1]); }))
      << "a page off by one";
  EXPECT_FALSE(passes_with([](AttentionStep& step) {
    const auto deep = std::find_if(step.rows.begin(), step.rows.end(), [](const AttentionRow& row) {
      return row.position - row.prefix >= 2;
    });
    ASSERT_NE(deep, step.rows.end());  // its parent gives way to its first ancestor
    step.tail_slots[deep->tail + deep->position - deep->prefix - 1] = step.tail_slots[deep->tail];
  })) << "a wrong bit in the mask";
  EXPECT_FALSE(passes_with([](AttentionStep& step) { --step.rows.back().position; }))
      << "a key too few";
}

}  // namespace
}  // namespace coppice::test
