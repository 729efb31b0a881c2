// Every backend's attention against the double-precision loop of oracle.h: what it stores, and what
// it makes of what is stored.
//
//   build/release/tests/attention_test --gtest_filter='*Windows*'
#include "tests/attention_cases.h"
#include "tests/backend_cases.h"
#include "tests/oracle.h"

namespace coppice::test {
namespace {

class AttentionTest : public BackendTest {
 protected:
  void SetUp() override { backend_ = make(); }

  /// Computes the tree in the layout and compares the last step's cache entries and outputs.
  void check(const AttentionShape& shape, int chain, int branches, const Layout& layout) {
    SCOPED_TRACE(
        fmt::format("heads {}/{}, dim {}, window {}, chain {} of which {} committed, {} "
                    "branches",
                    shape.heads, shape.kv_heads, shape.head_dim, shape.window, chain,
                    layout.committed, branches));
    Rng rng(static_cast<uint32_t>(31 + chain + branches));
    const int pages = (chain + branches) / kPageSlots + 2;
    AttentionRig rig(*backend_, shape, pages, layout.neighbours + 1);
    const Tree tree = random_tree(chain, branches, rig.width(), rng);
    rig.tree_rows(tree, layout, rng);
    AttentionStep& step = rig.last_step();
    const std::vector<float> out = step.out;
    const Attention op = rig.op(step);
    check_stored(op);
    expect_within(oracle::attention(op, precision()), out.data());
  }

  /// K and V are the nearest f16: half a step of 2^-11 of the value, 2^-25 below the normal range,
  /// and the float error of norm and rotation, which is relative to the whole pair.
  void check_stored(const Attention& op) {
    for (int r = 0; r < op.rows; ++r) {
      for (int h = 0; h < op.kv.kv_heads; ++h) {
        const auto key = oracle::stored_key(op, op.row[r], op.row[r].slot, h);
        const auto k = oracle::rotated(op, r, op.heads + h, op.k_norm);
        const float* v = op.qkv + (static_cast<size_t>(r) * (op.heads + 2 * op.kv.kv_heads) +
                                   op.heads + op.kv.kv_heads + h) *
                                      op.kv.head_dim;
        double largest = 0.0;
        for (double value : k) largest = std::max(largest, std::abs(value));
        for (int d = 0; d < op.kv.head_dim; ++d) {
          ASSERT_NEAR(key.k[d], k[d], std::abs(k[d]) * 0x1p-11 + 0x1p-25 + 2e-6 * largest);
          ASSERT_EQ(static_cast<float>(key.v[d]), half_to_float(float_to_half(v[d])));
        }
      }
    }
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(AttentionTest, OneRowOneKey) {
  check({.heads = 3, .kv_heads = 1}, 1, 0, {});
}

TEST_P(AttentionTest, ShapesOfRealModels) {
  const AttentionShape shapes[] = {
      {9, 3, 64, RotaryStyle::adjacent, false, 0},     // SmolLM2
      {14, 2, 64, RotaryStyle::half_split, false, 0},  // Qwen2.5 0.5B
      {12, 2, 128, RotaryStyle::half_split, false, 0},
      {4, 1, 256, RotaryStyle::half_split, true, 0},  // Gemma 3 270m
      {5, 5, 80, RotaryStyle::adjacent, true, 0},
      {2, 1, 16, RotaryStyle::half_split, false, 0},
  };
  for (const AttentionShape& shape : shapes) {
    check(shape, 45, 9, {.committed = 45, .prefix = 45});
    check(shape, 70, 0, {});
  }
}

TEST_P(AttentionTest, TreesAcrossPageEdges) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 32};
  for (int chain : {31, 32, 33, 63, 64}) {
    check(shape, chain, 7, {.committed = chain, .prefix = chain});
    check(shape, chain, 7, {.committed = chain, .prefix = chain, .scattered = true});
  }
  check(shape, 30, 65, {.committed = 30, .prefix = 30});
}

TEST_P(AttentionTest, KeysByPositionOrByTailSlots) {
  const AttentionShape shape{.heads = 4, .kv_heads = 4, .head_dim = 64};
  for (int prefix : {0, 1, 32, 39, 40}) {
    check(shape, 40, 5, {.committed = 40, .prefix = prefix, .scattered = true});
  }
}

TEST_P(AttentionTest, Windows) {
  for (int window : {1, 2, 31, 32, 33, 64, 1000}) {
    AttentionShape shape{.heads = 4, .kv_heads = 1, .head_dim = 64};
    shape.window = window;
    check(shape, 66, 6, {.committed = 66, .prefix = 66});
    check(shape, 100, 0, {.committed = 50, .prefix = 50});
  }
}

TEST_P(AttentionTest, ManySequencesInOneStep) {
  const AttentionShape shape{.heads = 3, .kv_heads = 3, .head_dim = 64};
  check(shape, 37, 6, {.committed = 37, .prefix = 37, .neighbours = 3});
}

// One key's score is far above the others': the softmax must not overflow, nor lose the rest.
TEST_P(AttentionTest, ExtremeScores) {
  AttentionRig rig(*backend_, {.heads = 1, .kv_heads = 1, .head_dim = 64}, 3);
  Rng rng(41);
  for (float size : {1e-4f, 30.0f, 1000.0f}) {
    Tree tree = random_tree(50, 0, rig.width(), rng);
    for (float& value : tree.qkv) value *= size;
    const auto out = rig.tree_rows(tree, {}, rng);
    const Attention op = rig.op(rig.last_step());
    expect_within(oracle::attention(op, precision()), out.data());
  }
}

// What a branch that was not taken left behind must not reach a row: its slots hold NaN.
TEST_P(AttentionTest, NanInUnusedSlotsStaysOut) {
  for (int window : {0, 3}) {
    AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 64};
    shape.window = window;
    AttentionRig rig(*backend_, shape, 4);
    Rng rng(42);
    Tree tree = random_tree(40, 8, rig.width(), rng);
    const int bad = 41;  // a node of the tree, NaN in Q, K and V
    std::fill_n(tree.qkv.begin() + bad * rig.width(), rig.width(), std::nanf(""));
    const auto out = rig.tree_rows(tree, {.committed = 40, .prefix = 40}, rng);
    for (int node = 0; node < tree.nodes(); ++node) {
      const auto path = tree.path(node);
      const auto seen = std::find(path.begin(), path.end(), bad);
      const auto behind = path.end() - seen;  // 1 when the bad key is the row's own
      const bool sees_bad = seen != path.end() && (window == 0 || behind <= window);
      for (int i = 0; i < rig.out_width(); ++i) {
        ASSERT_EQ(std::isnan(out[node * rig.out_width() + i]), sees_bad) << "node " << node;
      }
    }
  }
}

COPPICE_FOR_EACH_BACKEND(AttentionTest);

}  // namespace
}  // namespace coppice::test
