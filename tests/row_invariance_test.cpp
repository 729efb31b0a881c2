// The contract that makes lossless mean bit for bit: what an op writes for a row is the same bytes
// alone, among 1 to 65 rows at any place, beside other sequences, in any cache layout, and for any
// thread count. Every comparison here is memcmp.
//
//   build/release/tests/row_invariance_test --gtest_filter='*Attention*'
#include "tests/attention_cases.h"
#include "tests/backend_cases.h"

namespace coppice::test {
namespace {

constexpr int kMostRows = 65;

class RowInvarianceTest : public BackendTest {
 protected:
  void SetUp() override {
    for (int threads : {1, 2, 3}) backends_.push_back(make(threads));
  }

  std::vector<std::unique_ptr<Backend>> backends_;
};

/// Asserts that rows first.. of `all` are the bytes of `some`; rows are `width` values.
template <class T>
void expect_same_rows(const std::vector<T>& all, int first, const std::vector<T>& some, int width) {
  ASSERT_LE(static_cast<size_t>(first) * width + some.size(), all.size());
  const T* same = all.data() + static_cast<size_t>(first) * width;
  if (std::memcmp(some.data(), same, some.size() * sizeof(T)) == 0) return;
  size_t i = 0;
  while (std::memcmp(&some[i], &same[i], sizeof(T)) == 0) ++i;
  FAIL() << "row " << first + i / width << ", column " << i % width << ": " << some[i] << " beside "
         << same[i];
}

/// compute(backend, first, count) gives `count` rows from row `first` on, `width` values each. The
/// measure is all 65 rows on one thread; then each n at the start, middle and end in turn, few rows
/// at all three, on every number of threads in turn.
template <class Compute>
void expect_rows_do_not_matter(std::span<const std::unique_ptr<Backend>> backends, int width,
                               Compute compute) {
  const auto all = compute(*backends[0], 0, kMostRows);
  for (int n = 1; n <= kMostRows; ++n) {
    for (int place = 0; place < 3; ++place) {
      if (n > 5 && place != n % 3) continue;
      const int first = place * (kMostRows - n) / 2;
      const auto& backend = backends[static_cast<size_t>(n / 3 + place) % backends.size()];
      SCOPED_TRACE(fmt::format("{} rows from {}, {}", n, first, backend->describe()));
      expect_same_rows(all, first, compute(*backend, first, n), width);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Weights of the same parts, packed by each backend.
std::vector<std::unique_ptr<Weight>> pack_by_each(
    std::span<const std::unique_ptr<Backend>> backends, std::span<const TensorView> parts,
    Stacking stacking) {
  std::vector<std::unique_ptr<Weight>> weights;
  for (const auto& backend : backends) weights.push_back(backend->pack(parts, stacking));
  return weights;
}

TEST_P(RowInvarianceTest, LinearOfEveryType) {
  constexpr int kInputs = 512, kOutputs = 101;
  for (DType type : kAllTypes) {
    SCOPED_TRACE(traits(type).name);
    Rng rng(51);
    const Tensor tensor(type, kOutputs, kInputs, rng);
    const auto weights = pack_by_each(backends_, {&tensor.view, 1}, Stacking::concatenated);
    const auto x = activation_rows(kMostRows, kInputs, rng);
    const auto norm = rng.normals(kInputs);
    expect_rows_do_not_matter(backends_, kOutputs, [&](Backend& backend, int first, int count) {
      size_t own = 0;
      while (backends_[own].get() != &backend) ++own;
      std::vector<float> y(static_cast<size_t>(count) * kOutputs);
      Linear op{.weight = weights[own].get(), .x = x.data() + first * kInputs};
      op.x_stride = kInputs;
      op.rows = count;
      op.norm = norm.data();
      op.norm_eps = 1e-5f;
      op.y = y.data();
      op.y_stride = kOutputs;
      const Op ops[] = {op};
      backend.run(ops);
      return y;
    });
    if (HasFatalFailure()) return;
  }
}

// The longest rows of the models in use: the inner dimension is summed in several blocks.
TEST_P(RowInvarianceTest, LinearGatedGatheredAndLong) {
  constexpr int kInputs = 4864, kOutputs = 130;
  Rng rng(52);
  std::vector<Tensor> parts;
  parts.emplace_back(DType::q5_0, kOutputs, kInputs, rng);
  parts.emplace_back(DType::q8_0, kOutputs, kInputs, rng);
  const TensorView views[] = {parts[0].view, parts[1].view};
  const auto weights = pack_by_each(backends_, views, Stacking::gated);
  const auto x = activation_rows(kMostRows, kInputs, rng);
  const auto before = rng.normals(static_cast<size_t>(kMostRows) * kOutputs);
  std::vector<int32_t> gather(kMostRows);
  for (int r = 0; r < kMostRows; ++r) gather[r] = r * 7 % kMostRows;
  expect_rows_do_not_matter(backends_, kOutputs, [&](Backend& backend, int first, int count) {
    size_t own = 0;
    while (backends_[own].get() != &backend) ++own;
    std::vector<float> y(before.begin() + first * kOutputs,
                         before.begin() + (first + count) * kOutputs);
    Linear op{.weight = weights[own].get(), .x = x.data(), .x_stride = kInputs};
    op.gather = gather.data() + first;
    op.rows = count;
    op.activation = Activation::silu;
    op.accumulate = true;
    op.y = y.data();
    op.y_stride = kOutputs;
    const Op ops[] = {op};
    backend.run(ops);
    return y;
  });
}

TEST_P(RowInvarianceTest, Embed) {
  constexpr int kDim = 256;
  for (DType type : kAllTypes) {
    SCOPED_TRACE(traits(type).name);
    Rng rng(53);
    const Tensor table(type, 50, kDim, rng);
    const auto weight = backends_[0]->pack({&table.view, 1}, Stacking::concatenated);
    std::vector<int32_t> token(kMostRows);
    for (int32_t& t : token) t = rng.below(50);
    const std::span one(backends_.data(), 1);
    expect_rows_do_not_matter(one, kDim, [&](Backend& backend, int first, int count) {
      std::vector<float> out(static_cast<size_t>(count) * kDim);
      const Op ops[] = {
          coppice::Embed{weight.get(), token.data() + first, count, 2.0f, out.data()}};
      backend.run(ops);
      return out;
    });
  }
}

TEST_P(RowInvarianceTest, AddNorm) {
  for (int dim : {33, 640}) {
    Rng rng(54);
    const auto y = activation_rows(kMostRows, dim, rng);
    const auto before = rng.normals(static_cast<size_t>(kMostRows) * dim);
    const auto weight = rng.normals(static_cast<size_t>(dim));
    expect_rows_do_not_matter(backends_, dim, [&](Backend& backend, int first, int count) {
      std::vector<float> x(before.begin() + first * dim, before.begin() + (first + count) * dim);
      const Op ops[] = {
          coppice::AddNorm{y.data() + first * dim, weight.data(), 1e-6f, count, dim, x.data()}};
      backend.run(ops);
      return x;
    });
  }
}

TEST_P(RowInvarianceTest, TopK) {
  constexpr int kCols = 333, kTop = 9;
  Rng rng(55);
  std::vector<float> x(static_cast<size_t>(kMostRows) * kCols);
  for (float& value : x) value = static_cast<float>(rng.below(40));  // many ties
  expect_rows_do_not_matter(backends_, kTop, [&](Backend& backend, int first, int count) {
    std::vector<int32_t> index(static_cast<size_t>(count) * kTop);
    std::vector<float> value(index.size());
    const Op ops[] = {coppice::TopK{x.data() + first * kCols, kCols, count, kCols, kTop,
                                    index.data(), value.data()}};
    backend.run(ops);
    return index;
  });
}

const AttentionShape kShapes[] = {
    {9, 3, 64, RotaryStyle::adjacent, false, 0},   {4, 1, 256, RotaryStyle::half_split, true, 0},
    {2, 2, 16, RotaryStyle::half_split, false, 0}, {4, 2, 64, RotaryStyle::half_split, true, 1},
    {4, 2, 64, RotaryStyle::adjacent, false, 33},
};

// Chains end at both sides of a page edge, so that trees begin before, on and behind it.
TEST_P(RowInvarianceTest, AttentionInEveryLayout) {
  for (const AttentionShape& shape : kShapes) {
    for (int chain : {1, 31, 32, 60}) {
      Rng rng(static_cast<uint32_t>(56 + chain));
      const int branches = 12, pages = 4, neighbours = 2;
      AttentionRig alone(*backends_[0], shape, pages);
      const Tree tree = random_tree(chain, branches, alone.width(), rng);
      const std::vector<float> expected = alone.rows_alone(tree);
      const Layout layouts[] = {
          {},
          {.scattered = true},
          {.committed = chain, .prefix = chain},
          {.committed = chain, .prefix = 0},
          {.committed = chain, .prefix = chain / 2, .scattered = true},
          {.committed = chain / 2, .prefix = chain / 2},
          {.committed = chain / 2, .prefix = chain / 3, .earlier_rows = 7, .scattered = true},
          {.committed = chain, .prefix = chain, .earlier_rows = 1},
          {.committed = chain, .prefix = chain, .earlier_rows = 33, .neighbours = neighbours},
          {.committed = 0, .prefix = 0, .scattered = true, .neighbours = neighbours},
      };
      for (const Layout& layout : layouts) {
        const auto& backend = backends_[static_cast<size_t>(&layout - layouts) % 3];
        SCOPED_TRACE(fmt::format(
            "heads {}/{} window {} chain {} committed {} prefix {} "
            "earlier_rows {} scattered {} neighbours {}, {}",
            shape.heads, shape.kv_heads, shape.window, chain, layout.committed, layout.prefix,
            layout.earlier_rows, layout.scattered, layout.neighbours, backend->describe()));
        AttentionRig rig(*backend, shape, pages, neighbours + 1);
        expect_same_rows(expected, 0, rig.tree_rows(tree, layout, rng), rig.out_width());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A chain in steps of n rows, n = 1..65, its keys reached by position, as the model places a
// prompt.
TEST_P(RowInvarianceTest, AttentionOfAnyNumberOfRows) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 64};
  Rng rng(57);
  AttentionRig rig(*backends_[1], shape, 4);
  const Tree chain = random_tree(kMostRows + 20, 0, rig.width(), rng);
  const std::vector<float> expected = rig.rows_alone(chain);
  std::vector<int> slot(static_cast<size_t>(chain.nodes()));
  std::iota(slot.begin(), slot.end(), 0);
  for (int n = 1; n <= kMostRows; ++n) {
    SCOPED_TRACE(n);
    rig.poison();
    for (int first = 0; first < chain.nodes(); first += n) {
      const int end = std::min(first + n, chain.nodes());
      AttentionStep step;
      rig.add_rows(step, chain, first, end, slot, first, 0);
      for (AttentionRow& row : step.rows) row.prefix = row.position + 1;
      rig.run(step);
      expect_same_rows(expected, first, step.out, rig.out_width());
      if (HasFatalFailure()) return;
    }
  }
}

// The commit of an accepted path: its keys move from tree slots to the slots of their positions,
// and the next row reads the same bits.
TEST_P(RowInvarianceTest, AttentionAfterMoveKv) {
  const AttentionShape shape{.heads = 4, .kv_heads = 2, .head_dim = 64};
  for (const auto& backend : backends_) {
    Rng rng(58);
    AttentionRig rig(*backend, shape, 4);
    Tree tree = random_tree(29, 10, rig.width(), rng);
    const int node = tree.nodes();  // one more, under the deepest
    tree.parent.push_back(node - 1);
    const auto qkv = rng.normals(static_cast<size_t>(rig.width()));
    tree.qkv.insert(tree.qkv.end(), qkv.begin(), qkv.end());
    const auto path = tree.path(node);
    const auto alone = rig.rows_alone(tree);
    const std::vector<float> expected(alone.end() - rig.out_width(), alone.end());

    rig.poison();
    std::vector<int> slot(static_cast<size_t>(tree.nodes()));
    std::iota(slot.begin(), slot.end(), 0);
    AttentionStep before, after;
    rig.add_rows(before, tree, 0, node, slot, 0, 0);
    rig.run(before);
    MoveKv move = {.kv = rig.op(before).kv};
    std::vector<int32_t> from, to;
    for (size_t p = 0; p + 1 < path.size(); ++p) {
      if (path[p] == static_cast<int>(p)) continue;
      from.push_back(before.pages[path[p] / kPageSlots] * kPageSlots + path[p] % kPageSlots);
      to.push_back(before.pages[p / kPageSlots] * kPageSlots + static_cast<int>(p) % kPageSlots);
    }
    ASSERT_FALSE(from.empty());
    move.count = static_cast<int>(from.size());
    move.from = from.data();
    move.to = to.data();
    for (size_t p = 0; p < path.size(); ++p) slot[path[p]] = static_cast<int>(p);
    rig.add_rows(after, tree, node, node + 1, slot, static_cast<int>(path.size()), 0);
    const Op ops[] = {move, rig.op(after)};
    backend->run(ops);
    expect_same_rows(expected, 0, after.out, rig.out_width());
  }
}

COPPICE_FOR_EACH_BACKEND(RowInvarianceTest);

}  // namespace
}  // namespace coppice::test
