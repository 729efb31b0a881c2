// The budget `auto`: its estimates, its choices against every possible choice, what it learns, and
// that an engine under it emits the baseline's text.
#include "decoding/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "decoding/engine.h"
#include "tests/scripted_drafter.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

CostCurve line(double first, double each) {
  return CostCurve({{1, first}, {2, first + each}}, 0.0, 0.0);
}

TEST(Calibration, AScoreStandsForItselfUntilThereIsEvidence) {
  Calibration calibration;
  EXPECT_NEAR(calibration.acceptance(0, 0.3f), 0.3, 1e-6);
  for (int i = 0; i < 400; ++i) calibration.learn(0, 0.3f, i % 10 == 0);
  EXPECT_NEAR(calibration.acceptance(0, 0.3f), 0.1, 0.03);
  EXPECT_NEAR(calibration.acceptance(1, 0.3f), 0.3, 1e-6) << "another source learnt nothing";
}

TEST(Calibration, AllScoresOfASourceAreCorrectedTogetherFirst) {
  Calibration calibration;
  for (int i = 0; i < 200; ++i) calibration.learn(0, 0.9f, i % 3 == 0);
  EXPECT_LT(calibration.acceptance(0, 0.5f), 0.35) << "its other scores boast as much";
  EXPECT_GT(calibration.acceptance(0, 0.9f), calibration.acceptance(0, 0.5f));
}

TEST(Calibration, StaysAProbabilityWhateverTheScore) {
  Calibration calibration;
  for (const float score : {-1.0f, 0.0f, 0.01f, 1.0f, 7.0f}) {
    for (int i = 0; i < 100; ++i) calibration.learn(0, score, score < 0.5f);
    EXPECT_GT(calibration.acceptance(0, score), 0.0);
    EXPECT_LT(calibration.acceptance(0, score), 1.0);
  }
}

TEST(CostCurve, IsStraightBetweenItsPointsAndBeyondThem) {
  const CostCurve costs({{1, 2.0}, {4, 5.0}, {8, 13.0}}, 0.25, 0.125);
  const auto rows = [&](int n) { return costs.seconds({n, 0, 0}); };
  EXPECT_THAT((std::vector{rows(1), rows(2), rows(4), rows(6), rows(8), rows(10)}),
              ElementsAre(DoubleNear(2, 1e-12), DoubleNear(3, 1e-12), DoubleNear(5, 1e-12),
                          DoubleNear(9, 1e-12), DoubleNear(13, 1e-12), DoubleNear(17, 1e-12)));
  EXPECT_NEAR(costs.seconds(4, 16), 5.0 + 0.25 * 16 + 0.125 * 4 * 16, 1e-12);
}

TEST(CostCurve, FollowsWhatPassesTookAndBelievesNoSinglePass) {
  CostCurve costs({{1, 1.0}, {8, 2.0}}, 0.0, 0.0);
  costs.learn({1, 0, 0}, 1000.0);
  EXPECT_LT(costs.seconds(1, 0), 1.2);
  for (int i = 0; i < 400; ++i) costs.learn({8, 0, 0}, 3.0);
  EXPECT_NEAR(costs.seconds(8, 0), 3.0, 0.05);
}

TEST(CostCurve, IsMeasuredOnAModelOfAnyContext) {
  const test::TinyModel tiny{{}};
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  for (const int context : {16, 160}) {
    const Model model(tiny.source(), *backend, context);
    const CostCurve costs = measure_costs(model, *backend);
    EXPECT_GT(costs.seconds(1, 8), 0.0);
    EXPECT_GE(costs.seconds(64, 8), costs.seconds(1, 8));
  }
}

TEST(DraftPrice, PaysWhenTheTokensAreWorthTheTime) {
  const Calibration calibration;
  const std::vector<double> seconds = {1.0, 1.1, 1.2, 1.3};
  const DraftPrice price{1.0, seconds, &calibration, false};
  EXPECT_TRUE(price.pays(0.5, 0, 0.1));
  EXPECT_FALSE(price.pays(0.1, 0, 0.1));
  EXPECT_FALSE(price.pays(0.5, 3, 0.0)) << "the list ends: no more rows than the price knows";
}

TEST(DraftPrice, LooksBeyondARowThatOpensATile) {
  const Calibration calibration;
  const std::vector<double> seconds = {1.0, 2.0, 2.0, 2.0, 2.0};
  const DraftPrice price{1.0, seconds, &calibration, false};
  EXPECT_FALSE(price.pays(0.45, 0, 0.0));  // 0.45 + 0.2 + 0.09 + 0.04 < 1
  EXPECT_TRUE(price.pays(0.6, 0, 0.0));    // 0.6 + 0.36 + 0.22 > 1
}

// ---- choosing

struct Choice {
  explicit Choice(CostCurve curve) : costs(std::move(curve)), budget(costs) {}
  void choose(std::vector<TokenTree*> trees, int context = 0) {
    std::vector<BudgetedTree> step;
    for (TokenTree* tree : trees) step.push_back({tree, context});
    budget.begin(step);
    budget.choose(step);
  }
  CostCurve costs;
  AutoBudget budget;
};

TEST(AutoBudget, KeepsAllWhereRowsAreFreeAndNoneWhereTheyAreDear) {
  for (const bool dear : {false, true}) {
    Choice choice(line(1.0, dear ? 1.0 : 0.0));
    TokenTree tree;
    tree.reset(1, 8);
    const int a = tree.add({.parent = 0, .token = 2, .score = 0.9f});
    tree.add({.parent = a, .token = 3, .score = 0.5f});
    tree.add({.parent = 0, .token = 4, .score = 0.05f});
    choice.choose({&tree});
    EXPECT_EQ(tree.size(), dear ? 1 : 4);
  }
}

// The worth of the nodes in `mask` (bit i: node i + 1); less than nothing when one lacks its
// parent.
double worth_of(const TokenTree& tree, unsigned mask, const CostCurve& costs, double lambda) {
  std::vector<double> reached(static_cast<size_t>(tree.size()), 0.0);
  reached[0] = 1.0;
  double tokens = 0.0;
  int rows = 1;
  for (int node = 1; node < tree.size(); ++node) {
    if ((mask >> (node - 1) & 1) == 0) continue;
    const double above = reached[static_cast<size_t>(tree.parent(node))];
    if (above == 0.0) return -1.0;
    reached[static_cast<size_t>(node)] = above * tree.score(node);
    tokens += reached[static_cast<size_t>(node)];
    ++rows;
  }
  return tokens - lambda * (costs.seconds(rows, 0) - costs.seconds(1, 0));
}

TEST(AutoBudget, NoChoiceOfPointMassNodesIsBetter) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(0.02f, 0.98f);
  for (int trial = 0; trial < 200; ++trial) {
    // Steps in the curve, as tiles of rows make them.
    std::vector<CostCurve::Point> points = {{1, 1.0}};
    for (int rows = 2; rows <= 10; ++rows) {
      points.push_back({rows, points.back().seconds + (random() % 3 == 0 ? 0.4 : 0.02)});
    }
    Choice choice(CostCurve(points, 0.0, 0.0));
    TokenTree tree;
    tree.reset(1, 9);
    for (int node = 1; node <= 9; ++node) {
      tree.add(
          {.parent = static_cast<int>(random() % node), .token = node, .score = uniform(random)});
    }
    const TokenTree whole = tree;
    double best = 0.0;
    for (unsigned mask = 0; mask < 1u << 9; ++mask) {
      best = std::max(best, worth_of(whole, mask, choice.costs, AutoBudget::kCaution));
    }
    choice.choose({&tree});
    EXPECT_NEAR(worth_of(tree, (1u << (tree.size() - 1)) - 1, choice.costs, AutoBudget::kCaution),
                best, 1e-5);
  }
}

TEST(AutoBudget, SequencesOfAStepShareTheRows) {
  Choice choice(CostCurve({{1, 1.0}, {3, 1.0}, {4, 3.0}}, 0.0, 0.0));  // the fourth row is dear
  TokenTree likely, unlikely;
  for (TokenTree* tree : {&likely, &unlikely}) {
    tree->reset(1, 4);
    tree->add({.parent = 0, .token = 2, .score = tree == &likely ? 0.9f : 0.2f});
  }
  choice.choose({&likely, &unlikely});
  EXPECT_EQ(likely.size(), 2);
  EXPECT_EQ(unlikely.size(), 1);
}

// Design, exactness: keeping a drawn token for what it is would change the distribution.
TEST(AutoBudget, DrawnSiblingsStayOrGoTogetherWhateverTheyAre) {
  for (const double dear : {0.05, 0.2, 0.4}) {
    std::vector<int> sizes;
    for (const std::vector<int32_t>& drawn : {std::vector<int32_t>{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
      Choice choice(line(1.0, dear));
      TokenTree tree;
      tree.reset(1, 8);
      const int row = tree.q.add_dense(std::vector<float>{0.7f, 0.3f});
      for (const int32_t token : drawn) {
        tree.add({.parent = 0, .token = token, .q_row = row, .score = 0.3f});
      }
      choice.choose({&tree});
      sizes.push_back(tree.size());
    }
    EXPECT_THAT(sizes, testing::Each(sizes[0])) << dear;
    EXPECT_NE(sizes[0], 2) << "half a group";
  }
}

TokenTree with_probes() {
  TokenTree tree;
  tree.reset(1, 8);
  const int probe = tree.add({.parent = 0, .token = 2, .role = NodeRole::probe});
  tree.add({.parent = probe, .token = 3, .role = NodeRole::probe});
  tree.add({.parent = 0, .token = 4, .score = 0.001f});
  return tree;
}

TEST(AutoBudget, ProbesAreOneBlockWhoseGainIsMeasured) {
  Choice choice(line(1.0, 0.2));
  TokenTree tree = with_probes();
  choice.choose({&tree});
  EXPECT_EQ(tree.size(), 3) << "the block, without the node that is worth nothing";
  const std::vector<ProposedNode> nothing = {{-1, 1}};
  for (int step = 0; step < 100; ++step) {  // no hit ever
    tree = with_probes();
    choice.choose({&tree});
    choice.budget.learn(nothing, std::vector<int32_t>{9});
    choice.budget.end(1, 0.0, choice.budget.expected_seconds());
  }
  EXPECT_EQ(tree.size(), 1);
}

// ---- learning

std::vector<ProposedNode> chain_of(const TokenTree& tree) {
  std::vector<ProposedNode> nodes;
  for (int i = 0; i < tree.size(); ++i) {
    nodes.push_back({tree.parent(i), tree.token(i), tree.score(i), 0, tree.role(i)});
  }
  return nodes;
}

TEST(AutoBudget, LearnsFromWhatItCut) {
  Choice choice(line(1.0, 0.5));
  int kept = 0;
  for (int step = 0; step < 60; ++step) {
    TokenTree tree;
    tree.reset(1, 4);
    tree.add({.parent = 0, .token = 2, .score = 0.2f});  // modest, and always right
    const std::vector<ProposedNode> proposed = chain_of(tree);
    choice.choose({&tree});
    kept = tree.size() - 1;
    if (step == 0) {
      EXPECT_EQ(kept, 0);
    }
    choice.budget.learn(proposed, std::vector<int32_t>{2});
    choice.budget.end(1 + kept, 0.0, choice.budget.expected_seconds());
  }
  EXPECT_EQ(kept, 1);
}

TEST(AutoBudget, TriesAgainAtABoundedCostWhenNothingIsDrafted) {
  Choice choice(line(1.0, 0.5));
  TokenTree tree;
  std::vector<int> trials;
  for (int step = 0; step < 1000; ++step) {
    tree.reset(1, 4);
    const BudgetedTree budgeted{&tree, 0};
    choice.budget.begin({&budgeted, 1});
    if (choice.budget.price().trial) {
      trials.push_back(step);
      EXPECT_TRUE(choice.budget.price().pays(0.0, 0, 1.0));
      EXPECT_FALSE(choice.budget.price().pays(0.0, 1, 1.0)) << "one token is enough to learn";
      tree.add({.parent = 0, .token = 2, .score = 0.01f});
    }
    choice.budget.choose({&budgeted, 1});
    choice.budget.end(1, 0.0, choice.budget.expected_seconds());
  }
  ASSERT_GE(trials.size(), 4u);
  EXPECT_LE(trials.size(), 9u);
  for (size_t i = 2; i < trials.size(); ++i) {
    EXPECT_GE(trials[i] - trials[i - 1], trials[i - 1] - trials[i - 2]);
  }
}

TEST(DraftBalance, LeavesALosingDrafterAloneLongerAndLonger) {
  DraftBalance balance;
  std::vector<int> rests;
  int asked = 0;
  for (int step = 0; step < 20000; ++step) {
    if (balance.rests()) {
      ++rests.back();
    } else {
      ++asked;
    }
    const bool rested = balance.rests();
    balance.learn(-0.06);
    if (!rested && balance.rests()) rests.push_back(0);
  }
  ASSERT_GE(rests.size(), 6u);
  EXPECT_EQ(rests[0], 64);
  for (size_t i = 1; i + 1 < rests.size(); ++i) {
    EXPECT_EQ(rests[i], std::min(2 * rests[i - 1], 1024));
  }
  EXPECT_LT(asked * 0.06, 0.01 * 20000);  // what it costs in all
}

TEST(DraftBalance, NeverLeavesOneThatWinsInBursts) {
  DraftBalance balance;
  for (int step = 0; step < 5000; ++step) {
    ASSERT_FALSE(balance.rests()) << step;
    balance.learn(step % 40 < 4 ? 3.0 : -0.05);
  }
}

// A head that costs a fifth of a token and is right four times in ten, but not evenly.
TEST(DraftBalance, NeverLeavesOneThatIsOftenWrongAndPays) {
  std::mt19937 random(1);
  DraftBalance balance;
  for (int step = 0; step < 5000; ++step) {
    ASSERT_FALSE(balance.rests()) << step;
    balance.learn(step % 64 == 0 ? -8.0 : random() % 10 < 4 ? 0.8 : -0.2);
  }
}

TEST(DraftBalance, AnOutlayIsNotALoss) {
  DraftBalance balance;
  for (int answer = 0; answer < 50; ++answer) {
    balance.learn(-8.0);  // a draft model reads the prompt
    for (int step = 0; step < 60; ++step) {
      ASSERT_FALSE(balance.rests()) << answer;
      balance.learn(0.2);
    }
  }
}

TEST(DraftBalance, OneThatPaysAgainRestsBrieflyAtFirst) {
  DraftBalance balance;
  const auto steps_of_rest = [&] {
    while (!balance.rests()) balance.learn(-0.06);
    int steps = 0;
    for (; balance.rests(); ++steps) balance.learn(0.0);
    return steps;
  };
  EXPECT_EQ(steps_of_rest(), 64);
  EXPECT_EQ(steps_of_rest(), 128);
  for (int step = 0; step < 50; ++step) balance.learn(0.5);
  EXPECT_EQ(steps_of_rest(), 64);
}

// ---- in the engine

class BudgetedEngine : public testing::Test {
 protected:
  BudgetedEngine() : model_(tiny_.source(), *backend_, 160) {}

  std::vector<std::vector<int32_t>> decode(Drafter* drafter, CostCurve* costs, float temperature) {
    const auto rule = make_rule(temperature > 0 ? "coupled" : "greedy");
    std::unique_ptr<AutoBudget> budget;
    if (costs != nullptr) budget = std::make_unique<AutoBudget>(*costs);
    Engine engine({&model_, backend_.get(), &tokenizer_, rule.get(), drafter, budget.get()},
                  {.sequences = 2, .budget = drafter != nullptr ? 8 : 0});
    engine.on_step = [&](const StepRecord& step) {
      proposed_ += step.proposed;
      drafted_ += step.drafted;
    };
    std::vector<RequestId> ids;
    for (const std::vector<int32_t>& prompt : {std::vector<int32_t>{5, 9, 2, 40}, {7, 7, 11}}) {
      Request request;
      request.prompt = prompt;
      request.stop.max_new_tokens = 60;
      request.sampling.temperature = temperature;
      request.sampling.seed = 3;
      ids.push_back(engine.submit(request));
    }
    while (engine.step()) {
    }
    std::vector<std::vector<int32_t>> texts;
    for (const RequestId id : ids) texts.push_back(engine.take(id).ids);
    return texts;
  }

  int proposed_ = 0, drafted_ = 0;
  test::TinyModel tiny_{{.sharpness = 3.0f}};
  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
  Model model_;
  Tokenizer tokenizer_ = tiny_.tokenizer();
};

TEST_F(BudgetedEngine, EmitsTheBaselinesTextWhateverRowsCost) {
  for (const float temperature : {0.0f, 1.0f}) {
    const auto baseline = decode(nullptr, nullptr, temperature);
    for (const double each : {0.0, 0.1, 5.0}) {
      // Right now and then: what follows in the baseline's own text, every third token spoilt.
      test::ScriptedDrafter drafter(8, [&](DraftJob& job) {
        const std::vector<int32_t>& text = baseline[job.tokens[0] == 5 ? 0 : 1];
        const size_t prompt = job.tokens[0] == 5 ? 4 : 3;
        int node = 0;
        for (size_t at = job.tokens.size() - prompt; at < text.size() && node >= 0; ++at) {
          const int32_t token = at % 3 == 0 ? (text[at] + 1) % 61 : text[at];
          node = job.tree->add({.parent = node, .token = token, .score = 0.7f});
        }
      });
      proposed_ = drafted_ = 0;
      CostCurve costs = line(1.0, each);
      EXPECT_EQ(decode(&drafter, &costs, temperature), baseline) << each;
      EXPECT_GT(proposed_, 0);
      if (each == 0.0) {
        EXPECT_EQ(drafted_, proposed_);
      }
      if (each == 5.0) {
        EXPECT_EQ(drafted_, 0);
      }
    }
  }
}

}  // namespace
}  // namespace coppice
