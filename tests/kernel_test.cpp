// Every backend's ops but attention against the double-precision loops of oracle.h.
//
//   build/release/tests/kernel_test --gtest_filter='*reference_avx2'
#include <limits>
#include <numeric>

#include "tests/backend_cases.h"
#include "tests/oracle.h"
#include "tests/random_tensors.h"

namespace coppice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class KernelTest : public BackendTest {
 protected:
  void SetUp() override { backend_ = make(); }

  /// Runs `op` with a weight of the parts and compares; the output's stride leaves a gap that must
  /// keep what it held.
  void check_linear(Linear op, const std::vector<Tensor>& parts, Stacking stacking) {
    std::vector<TensorView> views;
    for (const Tensor& part : parts) views.push_back(part.view);
    const auto weight = backend_->pack(views, stacking);
    const int inputs = static_cast<int>(views[0].cols);
    ASSERT_EQ(weight->inputs, inputs);
    op.weight = weight.get();
    if (op.x_stride == 0) op.x_stride = inputs;
    op.y_stride = weight->outputs + 3;
    Rng rng(5);
    std::vector<float> y(static_cast<size_t>(op.rows) * op.y_stride, kNan);
    for (int r = 0; op.accumulate && r < op.rows; ++r) {
      for (int c = 0; c < weight->outputs; ++c) y[r * op.y_stride + c] = rng.normal();
    }
    op.y = y.data();
    const auto expected = oracle::linear(op, views, stacking == Stacking::gated, precision());
    ASSERT_EQ(expected.size(), static_cast<size_t>(op.rows) * weight->outputs);
    const Op ops[] = {op};
    backend_->run(ops);
    for (int r = 0; r < op.rows; ++r) {
      SCOPED_TRACE("row " + std::to_string(r));
      expect_within(std::span(expected).subspan(static_cast<size_t>(r) * weight->outputs,
                                                static_cast<size_t>(weight->outputs)),
                    op.y + static_cast<size_t>(r) * op.y_stride);
      for (int c = weight->outputs; c < op.y_stride; ++c) {
        ASSERT_TRUE(std::isnan(y[r * op.y_stride + c])) << "wrote past the outputs";
      }
    }
  }

  std::unique_ptr<Backend> backend_;
};

std::vector<Tensor> one(DType type, int outputs, int inputs, Rng& rng) {
  std::vector<Tensor> parts;
  parts.emplace_back(type, outputs, inputs, rng);
  return parts;
}

TEST_P(KernelTest, LinearOfEveryTypeAndAwkwardShape) {
  for (DType type : kAllTypes) {
    const int block = std::max(32, traits(type).block_values);
    for (int inputs : {block, 3 * block, 2304}) {
      for (int outputs : {1, 7, 33, 100}) {
        for (int rows : {1, 3, 65}) {
          SCOPED_TRACE(fmt::format("{} {}x{}, {} rows", traits(type).name, outputs, inputs, rows));
          Rng rng(static_cast<uint32_t>(inputs + outputs));
          const auto parts = one(type, outputs, inputs, rng);
          const auto x = activation_rows(rows, inputs, rng);
          check_linear({.x = x.data(), .rows = rows}, parts, Stacking::concatenated);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(KernelTest, LinearPrologueAndEpilogue) {
  Rng rng(11);
  constexpr int kRows = 5, kInputs = 256, kOutputs = 70, kStride = 259;
  const auto x = activation_rows(kRows, kStride, rng);
  const auto norm = rng.normals(kInputs);
  const auto bias = rng.normals(kOutputs);
  const int32_t gather[] = {4, 0, 0, 2};
  for (DType type : {DType::f32, DType::q4_1, DType::q6_k}) {
    const auto parts = one(type, kOutputs, kInputs, rng);
    for (Activation activation : {Activation::none, Activation::silu, Activation::gelu_tanh}) {
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(fmt::format("{} activation {} accumulate {}", traits(type).name,
                                 static_cast<int>(activation), accumulate));
        Linear op{.x = x.data(), .x_stride = kStride, .rows = kRows};
        op.activation = activation;
        op.accumulate = accumulate;
        check_linear(op, parts, Stacking::concatenated);
        op.bias = bias.data();
        check_linear(op, parts, Stacking::concatenated);
        op.norm = norm.data();
        op.norm_eps = 1e-5f;
        check_linear(op, parts, Stacking::concatenated);
        op.gather = gather;
        op.rows = 4;
        check_linear(op, parts, Stacking::concatenated);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(KernelTest, LinearConcatenatesPartsOfDifferentTypes) {
  Rng rng(12);
  std::vector<Tensor> parts;
  parts.emplace_back(DType::q5_0, 40, 256, rng);
  parts.emplace_back(DType::q8_0, 9, 256, rng);
  parts.emplace_back(DType::q4_k, 100, 256, rng);
  const auto x = activation_rows(6, 256, rng);
  check_linear({.x = x.data(), .rows = 6}, parts, Stacking::concatenated);
}

TEST_P(KernelTest, LinearGatesTheUpHalf) {
  Rng rng(13);
  for (DType type : kAllTypes) {
    SCOPED_TRACE(traits(type).name);
    std::vector<Tensor> parts;
    parts.emplace_back(type, 130, 256, rng);
    parts.emplace_back(type == DType::q4_k ? DType::q6_k : type, 130, 256, rng);
    const auto x = activation_rows(7, 256, rng);
    const auto norm = rng.normals(256);
    Linear op{.x = x.data(), .rows = 7, .norm = norm.data(), .norm_eps = 1e-6f};
    op.activation = Activation::silu;
    check_linear(op, parts, Stacking::gated);
    op.activation = Activation::gelu_tanh;
    op.accumulate = true;
    check_linear(op, parts, Stacking::gated);
  }
}

// All quantised values and all activations at their largest: integer sums that are too narrow
// overflow here and nowhere else.
TEST_P(KernelTest, LinearAtTheLargestSums) {
  for (int fill : {0x00, 0x7f, 0x80, 0xff}) {
    for (DType type : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                       DType::q5_k, DType::q6_k}) {
      for (float sign : {1.0f, -1.0f}) {
        SCOPED_TRACE(fmt::format("{} filled with {:#x}, x = {}", traits(type).name, fill, sign));
        Rng rng(14);
        auto parts = one(type, 17, 2048, rng);
        parts[0].fill_values(fill, 0.01f);
        const std::vector<float> x(4 * 2048, sign);
        check_linear({.x = x.data(), .rows = 4}, parts, Stacking::concatenated);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(KernelTest, LinearOfNoRowsDoesNothing) {
  Rng rng(15);
  const auto parts = one(DType::q8_0, 8, 32, rng);
  check_linear({.x = nullptr, .rows = 0}, parts, Stacking::concatenated);
}

TEST_P(KernelTest, EmbedReadsRowsOfThePackedTable) {
  for (DType type : kAllTypes) {
    SCOPED_TRACE(traits(type).name);
    Rng rng(16);
    const Tensor table(type, 131, 512, rng);
    const auto weight = backend_->pack({&table.view, 1}, Stacking::concatenated);
    const int32_t token[] = {130, 0, 77, 0, 95, 96};
    std::vector<float> out(6 * 512, kNan);
    const Embed op{weight.get(), token, 6, 3.5f, out.data()};
    const Op ops[] = {op};
    backend_->run(ops);
    expect_within(oracle::embed(op, table.view), out.data());
  }
}

TEST_P(KernelTest, AddNorm) {
  Rng rng(17);
  for (int dim : {1, 31, 640}) {
    const auto y = activation_rows(9, dim, rng);
    const auto weight = rng.normals(static_cast<size_t>(dim));
    auto x = rng.normals(static_cast<size_t>(9) * dim);
    const AddNorm op{y.data(), weight.data(), 1e-6f, 9, dim, x.data()};
    const auto expected = oracle::add_norm(op);
    const Op ops[] = {op};
    backend_->run(ops);
    expect_within(expected, x.data());
  }
}

TEST_P(KernelTest, CopyKeepsToItsRows) {
  Rng rng(18);
  const auto x = rng.normals(3 * 40);
  std::vector<float> out(3 * 50, kNan);
  const Op ops[] = {Copy{x.data(), 40, 3, 37, out.data(), 50}};
  backend_->run(ops);
  for (int r = 0; r < 3; ++r) {
    for (int i = 0; i < 37; ++i) ASSERT_EQ(out[r * 50 + i], x[r * 40 + i]);
    for (int i = 37; i < 50; ++i) ASSERT_TRUE(std::isnan(out[r * 50 + i]));
  }
}

TEST_P(KernelTest, OpsRunInOrder) {
  Rng rng(19);
  const Tensor table(DType::f32, 4, 64, rng);
  const auto weight = backend_->pack({&table.view, 1}, Stacking::concatenated);
  const int32_t token[] = {2};
  std::vector<float> a(64), b(64);
  const Op ops[] = {Embed{weight.get(), token, 1, 1.0f, a.data()},
                    Copy{a.data(), 64, 1, 64, b.data(), 64},
                    Embed{weight.get(), token, 1, 2.0f, a.data()}};
  backend_->run(ops);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(a[i], 2.0f * b[i]);
}

void expect_top_k(Backend& backend, const std::vector<float>& x, int rows, int cols, int k) {
  SCOPED_TRACE(fmt::format("{} rows of {}, k = {}", rows, cols, k));
  std::vector<int32_t> index(static_cast<size_t>(rows) * k, -1);
  std::vector<float> value(static_cast<size_t>(rows) * k);
  const Op ops[] = {TopK{x.data(), cols, rows, cols, k, index.data(), value.data()}};
  backend.run(ops);
  for (int r = 0; r < rows; ++r) {
    const float* row = x.data() + static_cast<size_t>(r) * cols;
    const auto expected = oracle::top_k(row, cols, k);
    for (int i = 0; i < k; ++i) {
      ASSERT_EQ(index[r * k + i], expected[i]) << "row " << r << ", rank " << i;
      ASSERT_EQ(std::memcmp(&value[r * k + i], row + expected[i], sizeof(float)), 0);
    }
  }
}

TEST_P(KernelTest, TopK) {
  Rng rng(20);
  for (int cols : {1, 2, 17, 1000}) {
    const auto x = rng.normals(static_cast<size_t>(3) * cols);
    for (int k : {1, 2, 16, 100}) {
      if (k <= cols) expect_top_k(*backend_, x, 3, cols, k);
    }
  }
  expect_top_k(*backend_, rng.normals(17), 1, 17, 17);
}

TEST_P(KernelTest, TopKTakesTheLowerIndexOfEqualValues) {
  Rng rng(21);
  std::vector<float> x(3 * 300);
  for (float& value : x) value = static_cast<float>(rng.below(4));
  expect_top_k(*backend_, x, 3, 300, 90);
  expect_top_k(*backend_, std::vector<float>(100, -kInfinity), 1, 100, 5);
  expect_top_k(*backend_, {-0.0f, 0.0f, -0.0f, 0.0f}, 1, 4, 4);
}

TEST_P(KernelTest, TopKPutsNanLast) {
  Rng rng(22);
  auto x = rng.normals(200);
  for (int i : {0, 1, 50, 199}) x[i] = kNan;
  x[2] = kInfinity;
  x[3] = -kInfinity;
  expect_top_k(*backend_, x, 1, 200, 200);
  expect_top_k(*backend_, x, 1, 200, 1);
  expect_top_k(*backend_, std::vector<float>(64, kNan), 1, 64, 3);
}

// A chain of moves, each reading what the one before wrote, in page memory of two layers.
TEST_P(KernelTest, MoveKvMovesInOrderAndTouchesNothingElse) {
  constexpr int kHeads = 3, kDim = 16, kPages = 3, kLayers = 2;
  constexpr size_t kPageBytes = kv_page_bytes(kHeads, kDim);
  Buffer buffer = backend_->allocate(kPages * kLayers * kPageBytes);
  auto* memory = buffer.as<uint16_t>();
  const size_t count = buffer.bytes / sizeof(uint16_t);
  std::iota(memory, memory + count, uint16_t{0});
  std::vector<uint16_t> expected(memory, memory + count);

  const KvLayer layer{buffer.data.get() + kPageBytes, kLayers * kPageBytes, kHeads, kDim};
  const int32_t from[] = {40, 31, 95, 2};
  const int32_t to[] = {31, 0, 2, 64};
  const auto k_at = [&](int slot, int i) {  // i of kHeads * kDim
    return (slot / 32 * kLayers + 1) * (kPageBytes / 2) + i * kPageSlots + slot % 32;
  };
  const auto v_at = [&](int slot, int i) {
    return (slot / 32 * kLayers + 1) * (kPageBytes / 2) +
           ((kHeads + i / kDim) * kPageSlots + slot % 32) * kDim + i % kDim;
  };
  for (int move = 0; move < 4; ++move) {
    for (int i = 0; i < kHeads * kDim; ++i) {
      expected[k_at(to[move], i)] = expected[k_at(from[move], i)];
      expected[v_at(to[move], i)] = expected[v_at(from[move], i)];
    }
  }
  const Op ops[] = {MoveKv{layer, 4, from, to}};
  backend_->run(ops);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(memory[i], expected[i]) << "at " << i;
}

COPPICE_FOR_EACH_BACKEND(KernelTest);

}  // namespace
}  // namespace coppice::test
