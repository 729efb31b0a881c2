// The shapes of draft trees: SpecInfer's expansion, EAGLE-2's ranking, Sequoia's optimum against
// every tree there is; and how children are grown from a draft model's logits.
#include "decoding/draft_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "decoding/draft_sampling.h"
#include "decoding/sequoia.h"

namespace coppice {
namespace {

TEST(TreeShape, IsLevelByLevelAndCutFromTheEnd) {
  const std::vector<int> branching = {2, 1, 3};
  const TreeShape shape = TreeShape::fixed(branching);
  EXPECT_EQ(shape.parent, (std::vector<int>{-1, 0, 0, 1, 2, 3, 3, 3, 4, 4, 4}));
  EXPECT_EQ(shape.depth, (std::vector<int>{0, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(shape.children(3), 3);
  EXPECT_EQ(shape.first_child(4), 8);
  EXPECT_EQ(shape.widest(), 2);
  EXPECT_EQ(shape.cut(6, 9).parent, (std::vector<int>{-1, 0, 0, 1, 2, 3, 3}));
  EXPECT_EQ(shape.cut(99, 2).parent, (std::vector<int>{-1, 0, 0, 1, 2}));
  EXPECT_EQ(TreeShape::chain(3).parent, (std::vector<int>{-1, 0, 1, 2}));
}

// EAGLE-2, figure 6, in small: a node deep below a sure one beats a shallow unlikely one, and what
// is kept hangs together.
TEST(DynamicTree, KeepsTheNodesOfMostValue) {
  DynamicTree dynamic;
  dynamic.reset();
  dynamic.add_children(0, std::vector<RankedToken>{{10, 0.6f}, {11, 0.2f}, {12, 0.1f}});
  EXPECT_EQ(dynamic.best_at(1, 2), (std::vector<int>{1, 2}));
  dynamic.add_children(1, std::vector<RankedToken>{{20, 0.5f}, {21, 0.3f}});
  dynamic.add_children(2, std::vector<RankedToken>{{22, 0.9f}, {23, 0.05f}});
  EXPECT_EQ(dynamic.best_at(2, 3), (std::vector<int>{4, 5, 6}));  // both 0.18, the earlier first
  TokenTree tree;
  tree.reset(5, 4);
  dynamic.rerank(tree);
  ASSERT_EQ(tree.size(), 5);
  std::vector<int32_t> tokens;
  for (int node = 1; node < tree.size(); ++node) tokens.push_back(tree.token(node));
  EXPECT_EQ(tokens, (std::vector<int32_t>{10, 20, 11, 21}));
  EXPECT_EQ(tree.parent(2), 1);
  EXPECT_EQ(tree.parent(4), 1);
  EXPECT_FLOAT_EQ(tree.score(4), 0.3f);
}

// Every ordered tree of exactly `nodes` nodes below its root, as the value of its forest.
double best_of_all(const std::vector<double>& acceptance, int nodes, int depth) {
  // Forests of children from `child` on: each has a subtree of 1.. nodes, or the list ends.
  const std::function<double(size_t, int, int)> forest = [&](size_t child, int left, int levels) {
    double best = 0.0;
    if (left == 0 || levels == 0 || child == acceptance.size()) return best;
    for (int own = 1; own <= left; ++own) {
      for (int rest = 0; rest <= left - own; ++rest) {
        best = std::max(best, acceptance[child] * (1.0 + forest(0, own - 1, levels - 1)) +
                                  forest(child + 1, rest, levels));
      }
    }
    return best;
  };
  return 1.0 + forest(0, nodes, depth);
}

double expected_of(const TreeShape& shape, const std::vector<double>& acceptance) {
  std::vector<double> reach(shape.parent.size(), 1.0);
  double sum = 1.0;
  for (int node = 1; node <= shape.nodes(); ++node) {
    const int parent = shape.parent[static_cast<size_t>(node)];
    const int rank = node - shape.first_child(parent);
    reach[static_cast<size_t>(node)] =
        reach[static_cast<size_t>(parent)] * acceptance[static_cast<size_t>(rank)];
    sum += reach[static_cast<size_t>(node)];
  }
  return sum;
}

TEST(Sequoia, IsTheBestOfAllTrees) {
  for (const std::vector<double>& acceptance :
       {std::vector<double>{0.7, 0.2, 0.05}, {0.5, 0.4, 0.3, 0.2}, {0.9}, {0.3, 0.3}}) {
    const SequoiaTrees trees(acceptance, 7, 5);
    for (int nodes = 0; nodes <= 7; ++nodes) {
      for (int depth = 1; depth <= 5; ++depth) {
        const double best = best_of_all(acceptance, nodes, depth);
        EXPECT_NEAR(trees.expected_tokens(nodes, depth), best, 1e-12);
        const TreeShape shape = trees.shape(nodes, depth);
        EXPECT_LE(shape.nodes(), nodes);
        EXPECT_LE(shape.depth.back(), depth);
        EXPECT_NEAR(expected_of(shape, acceptance), best, 1e-12);
      }
    }
  }
}

// Where rows are free the tree is as large as it may be; where a row costs as much as a pass, none
// is drafted.
TEST(Sequoia, SizeFollowsTheCostCurve) {
  const SequoiaTrees trees(std::vector<double>{0.7, 0.2}, 16, 6);
  const auto flat = [](int) { return 1.0; };
  EXPECT_EQ(trees.best_size(flat, 0.0, {16, 6}).nodes, 16);
  EXPECT_EQ(trees.best_size([](int rows) { return 1.0 * rows; }, 0.1, {16, 6}).nodes, 0);
  const auto some = [](int rows) { return 1.0 + 0.1 * rows; };
  const SequoiaTrees::Size cheap = trees.best_size(some, 0.01, {16, 6});
  const SequoiaTrees::Size dear = trees.best_size(some, 0.4, {16, 6});
  EXPECT_GT(cheap.depth, dear.depth);
  EXPECT_GT(dear.nodes, 0);
}

class Children : public testing::Test {
 protected:
  static constexpr int kVocabulary = 12;
  Children() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 1.5f);
    for (float& logit : logits_) logit = normal(random);
  }
  std::vector<int> grow(Draw draw, float temperature, const SiblingGroup& group,
                        uint64_t seed = 0) {
    sampler_ = std::make_unique<Sampler>(SamplingParams{.temperature = temperature, .seed = seed},
                                         kVocabulary, std::vector<int32_t>{});
    tree_.reset(1, 16);
    DraftJob job;
    job.tokens = tokens_;
    job.budget = 16;
    job.draw = draw;
    job.sampler = sampler_.get();
    job.tree = &tree_;
    std::vector<int> nodes;
    add_children(job, 0, logits_, group, nodes);
    return nodes;
  }
  std::vector<float> softmax() const {
    std::vector<float> p;
    float sum = 0.0f;
    for (const float logit : logits_) sum += p.emplace_back(std::exp(logit));
    for (float& x : p) x /= sum;
    return p;
  }
  std::vector<float> logits_ = std::vector<float>(kVocabulary);
  std::vector<int32_t> tokens_ = {4, 7, 1};
  std::unique_ptr<Sampler> sampler_;
  TokenTree tree_;
};

TEST_F(Children, GreedyTakesTheMostProbableWithTheirProbability) {
  const std::vector<float> p = softmax();
  for (const Draw draw : {Draw::argmax, Draw::independent, Draw::coupled}) {  // temperature 0
    const std::vector<int> nodes = grow(draw, 0.0f, {3});
    ASSERT_EQ(nodes.size(), 3u);
    float above = 1.0f;
    for (const int node : nodes) {
      EXPECT_EQ(tree_.q_row(node), kPointMass);
      EXPECT_NEAR(tree_.score(node), p[static_cast<size_t>(tree_.token(node))], 1e-5);
      EXPECT_LE(tree_.score(node), above);
      above = tree_.score(node);
    }
    EXPECT_EQ(tree_.token(1), sampler_->argmax(logits_, {tokens_, {}}));
  }
}

TEST_F(Children, CoupledTakesTheTargetsOwnDrawFirst) {
  std::set<int32_t> seen;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<int> nodes = grow(Draw::coupled, 1.0f, {3}, seed);
    ASSERT_EQ(nodes.size(), 3u);
    EXPECT_EQ(tree_.token(1), sampler_->coupled(logits_, {tokens_, {}}, 3));
    EXPECT_GE(tree_.score(1), tree_.score(2));
    EXPECT_GE(tree_.score(2), tree_.score(3));
    EXPECT_GT(tree_.score(3), 0.0f);
    seen.insert(tree_.token(1));
  }
  EXPECT_GT(seen.size(), 3u);
}

// The score of drawn siblings is one function of q: it never tells what was drawn.
TEST_F(Children, DrawnSiblingsShareTheirScoreAndTheirRow) {
  std::set<float> scores;
  bool repeated = false;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    grow(Draw::independent, 1.0f, {.count = 3, .without_replacement = false}, seed);
    ASSERT_EQ(tree_.size(), 4);
    std::set<int32_t> tokens;
    for (int node = 1; node < 4; ++node) {
      scores.insert(tree_.score(node));
      tokens.insert(tree_.token(node));
      EXPECT_EQ(tree_.q_row(node), 0);
    }
    repeated = repeated || tokens.size() < 3;
    grow(Draw::independent, 1.0f, {.count = kVocabulary + 4}, seed);
    EXPECT_EQ(tree_.size(), kVocabulary + 1);  // every token once, then q is used up
  }
  EXPECT_EQ(scores.size(), 1u);
  EXPECT_TRUE(repeated);
}

}  // namespace
}  // namespace coppice
