// Tree rules against chain rules written straight from the papers, question by question and bit for
// bit; the lossy rules against their definitions; the forced one against its coins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "decoding/acceptance.h"
#include "tests/toy_cases.h"

namespace coppice {
namespace {

using test::draft_row;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Answers in turn, and remembers what was asked.
class ScriptedCoins : public Coins {
 public:
  explicit ScriptedCoins(std::vector<bool> accepts) : accepts_(std::move(accepts)) {}
  bool accept(double probability) override {
    asked.push_back(probability);
    return accepts_.at(at_++);
  }
  int draw(std::span<const double> weights, double total) override {
    asked.insert(asked.end(), weights.begin(), weights.end());
    asked.push_back(total);
    return static_cast<int>(std::max_element(weights.begin(), weights.end()) - weights.begin());
  }
  std::vector<double> asked;

 private:
  std::vector<bool> accepts_;
  size_t at_ = 0;
};

/// Leviathan 2023, Alg. 1, for a chain alone: what it asks its coins, in order.
std::vector<double> chain_rejection(const TokenTree& chain, TargetRows& target,
                                    const std::vector<bool>& accepts) {
  std::vector<double> asked;
  for (int node = 0;; ++node) {
    // In the order of kernels/shared/team.h: the upper half onto the lower, until one is left.
    const auto sum = [](std::vector<double> x) {
      x.resize(std::bit_ceil(x.size()));
      for (; x.size() > 1; x.resize(x.size() / 2)) {
        for (size_t i = 0; i < x.size() / 2; ++i) x[i] += x[x.size() / 2 + i];
      }
      return x[0];
    };
    const std::span<const float> row = target.p(node);
    std::vector<double> p(row.begin(), row.end());
    double total = sum(p);
    if (node + 1 == chain.size()) {  // all were accepted
      asked.insert(asked.end(), p.begin(), p.end());
      asked.push_back(total);
      return asked;
    }
    const QRows::Row q_row = chain.q.row(chain.q_row(node + 1));
    const std::vector<double> q(q_row.p.begin(), q_row.p.end());
    const double q_total = sum(q);
    const size_t x = static_cast<size_t>(chain.token(node + 1));
    const double q_x = q[x] / q_total;
    const double p_x = p[x] / total;
    asked.push_back(p_x < q_x ? p_x / q_x : 1.0);
    if (accepts[static_cast<size_t>(node)]) continue;
    for (size_t i = 0; i < p.size(); ++i) p[i] = std::max(0.0, p[i] / total - q[i] / q_total);
    asked.insert(asked.end(), p.begin(), p.end());
    asked.push_back(sum(p));
    return asked;
  }
}

struct Judged {
  std::vector<std::vector<float>> logits;
  std::vector<const float*> rows;
  Judged(const ToyLogits& model, const Tokens& context, const TokenTree& tree) {
    Tokens path;
    for (int node = 0; node < tree.size(); ++node) {
      tree.path_tokens(node, path);
      Tokens all = context;
      all.insert(all.end(), path.begin(), path.end());
      logits.push_back(model(all));
    }
    for (const auto& row : logits) rows.push_back(row.data());
  }
  TargetRows target(Sampler& sampler, const TokenTree& tree, const Tokens& context,
                    Coins* coins = nullptr) const {
    return {sampler, tree, rows, static_cast<int>(logits[0].size()), context, coins};
  }
};

TEST(Chains, RejectionAsksBitForBitWhatTheChainAlgorithmAsks) {
  const auto rule = make_rule("rejection");
  const ToyModel model{21, 6};
  const ToyModel draft{22, 6};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Sampler sampler({.temperature = 0.8f, .top_p = 0.95f, .seed = seed}, 6, {});
    const Tokens context = {static_cast<int32_t>(seed % 6), 2};
    TokenTree chain;
    chain.reset(2, 4);
    Tokens path;
    for (int node = 0; node < 4; ++node) {
      const std::vector<float> q = draft_row(draft, sampler, context, path);
      path.push_back(sampler.draw_draft(q, 1, node + 1, chain.size()));
      chain.add({.parent = node, .token = path.back(), .q_row = chain.q.add_dense(q)});
    }
    const Judged judged(model, context, chain);
    for (size_t accepted = 0; accepted <= 4; ++accepted) {
      std::vector<bool> accepts(4, false);
      std::fill_n(accepts.begin(), accepted, true);
      ScriptedCoins coins(accepts);
      TargetRows target = judged.target(sampler, chain, context, &coins);
      Verdict verdict;
      rule->judge(chain, target, verdict);
      EXPECT_EQ(verdict.path.size(), accepted);
      TargetRows plain = judged.target(sampler, chain, context);
      EXPECT_EQ(coins.asked, chain_rejection(chain, plain, accepts)) << seed;
    }
  }
}

TEST(Chains, GreedyAndCoupledStopAtTheFirstTokenThatIsNotTheTargets) {
  const ToyModel model{23, 5};
  for (const std::string_view name : {"greedy", "coupled"}) {
    const auto rule = make_rule(name);
    const float temperature = name == "greedy" ? 0.0f : 0.9f;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      Sampler sampler({.temperature = temperature, .seed = seed}, 5, {});
      const Tokens context = {1, static_cast<int32_t>(seed % 5)};
      Tokens text = context;  // the target's own, and a chain that leaves it somewhere
      TokenTree chain;
      chain.reset(context.back(), 4);
      int node = 0;
      for (int i = 0; i < 4; ++i) {
        text.push_back(sampler.coupled(model(text), {text, {}}, static_cast<int>(text.size())));
        const int32_t wrong = seed % 6 == static_cast<uint64_t>(i) ? 1 : 0;
        node = chain.add({.parent = node, .token = (text.back() + wrong) % 5});
      }
      const size_t right = std::min<size_t>(seed % 6, 4);
      const Judged judged(model, context, chain);
      TargetRows target = judged.target(sampler, chain, context);
      Verdict verdict;
      rule->judge(chain, target, verdict);
      EXPECT_EQ(verdict.path.size(), right);
      if (right < 4) {
        EXPECT_EQ(verdict.token, text[2 + right]);
      }
    }
  }
}

/// A target of four tokens that says the same everywhere.
const ToyLogits kSame = [](std::span<const int32_t>) {
  return std::vector<float>{std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
};

Verdict judge(const AcceptanceRule& rule, const TokenTree& tree, float temperature,
              uint64_t seed = 0) {
  Sampler sampler({.temperature = temperature, .seed = seed}, 4, {});
  const Tokens context = {3};
  const Judged judged(kSame, context, tree);
  TargetRows target = judged.target(sampler, tree, context);
  Verdict verdict;
  rule.judge(tree, target, verdict);
  return verdict;
}

// exp(-H) of the target is 0.319, so that epsilon 0.09 decides with delta 0.3 and 0.2 with 1.
TEST(Typical, KeepsTheLongestOfTheTypicalPaths) {
  TokenTree tree;
  tree.reset(3, 16);
  const int a = tree.add({.parent = 0, .token = 0});
  const int b = tree.add({.parent = 0, .token = 2});
  const int c = tree.add({.parent = b, .token = 1});
  tree.add({.parent = a, .token = 3});  // 0.05: never typical
  const int d = tree.add({.parent = c, .token = 2});
  EXPECT_THAT(judge(*make_rule("typical"), tree, 1.0f).path, ElementsAre(b, c, d));
  // With delta 1 and a large epsilon the bound is 0.319: b's 0.15 falls below it.
  EXPECT_THAT(
      judge(*make_rule("typical", {{"epsilon", 0.5, ""}, {"delta", 1.0, ""}}), tree, 1.0f).path,
      ElementsAre(a));
  // min(epsilon, ...): epsilon alone below the entropy's bound.
  EXPECT_THAT(
      judge(*make_rule("typical", {{"epsilon", 0.2, ""}, {"delta", 1.0, ""}}), tree, 1.0f).path,
      ElementsAre(a));
  EXPECT_THAT(
      judge(*make_rule("typical", {{"epsilon", 0.6, ""}, {"delta", 9.0, ""}}), tree, 1.0f).path,
      IsEmpty());
}

TEST(Typical, OfEquallyLongPathsTheLikeliestWins) {
  TokenTree tree;
  tree.reset(3, 16);
  tree.add({.parent = 0, .token = 2});
  const int likely = tree.add({.parent = 0, .token = 0});
  tree.add({.parent = 0, .token = 1});
  EXPECT_THAT(judge(*make_rule("typical"), tree, 1.0f).path, ElementsAre(likely));
}

// As Medusa's: without temperature p is a point mass, and the rule is greedy.
TEST(Typical, IsGreedyAtTemperatureZero) {
  TokenTree tree;
  tree.reset(3, 16);
  tree.add({.parent = 0, .token = 1});
  EXPECT_THAT(judge(*make_rule("typical"), tree, 0.0f).path, IsEmpty());
  const int best = tree.add({.parent = 0, .token = 0});
  EXPECT_THAT(judge(*make_rule("typical"), tree, 0.0f).path, ElementsAre(best));
}

// Gaps from the first token: 0, 0.51, 1.20, 2.30 nats.
TEST(Threshold, TakesTheLikeliestChildThatIsNearEnough) {
  const auto rule = [](int64_t top, double gap) {
    return make_rule("threshold", {{"top", top, ""}, {"gap", gap, ""}});
  };
  TokenTree tree;
  tree.reset(3, 16);
  const int third = tree.add({.parent = 0, .token = 2});
  const int fourth = tree.add({.parent = third, .token = 3});
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_THAT(judge(*make_rule("threshold"), tree, temperature).path, IsEmpty());
    EXPECT_THAT(judge(*rule(3, 1.3), tree, temperature).path, ElementsAre(third));
    EXPECT_THAT(judge(*rule(2, 1.3), tree, temperature).path, IsEmpty());
    EXPECT_THAT(judge(*rule(4, 9.0), tree, temperature).path, ElementsAre(third, fourth));
  }
  EXPECT_THAT(judge(*rule(4, 1.3), tree, 4.0f).path, ElementsAre(third, fourth));  // 2.3 / 4
  const int second = tree.add({.parent = 0, .token = 1});
  EXPECT_THAT(judge(*rule(4, 9.0), tree, 0.0f).path, ElementsAre(second));
}

// A step without drafts is the baseline's under every rule that draws by the target's noise.
TEST(LossyRules, WithoutADraftTheTextIsTheBaselines) {
  TokenTree tree;
  tree.reset(3, 4);
  tree.add({.parent = 0, .token = 1, .role = NodeRole::probe});
  for (const std::string_view name : {"typical", "threshold", "forced"}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Verdict verdict = judge(*make_rule(name), tree, 1.0f, seed);
      EXPECT_THAT(verdict.path, IsEmpty());
      Sampler sampler({.temperature = 1.0f, .seed = seed}, 4, {});
      const Tokens context = {3};
      EXPECT_EQ(verdict.token, sampler.coupled(kSame(context), {context, {}}, 1)) << name;
    }
  }
}

TEST(Forced, AcceptsAsOftenAsItWasTold) {
  const auto rule = make_rule("forced", {{"acceptance", std::vector<double>{0.9, 0.5}, ""}});
  TokenTree tree;
  tree.reset(3, 16);
  int node = 0;
  for (int i = 0; i < 4; ++i) node = tree.add({.parent = node, .token = 3});
  constexpr int kSteps = 4000;
  std::vector<int> reached(5), accepted(5);
  for (uint64_t seed = 0; seed < kSteps; ++seed) {
    const size_t length = judge(*rule, tree, 1.0f, seed).path.size();
    for (size_t i = 0; i < std::min<size_t>(length + 1, 4); ++i) {
      ++reached[i];
      accepted[i] += i < length;
    }
  }
  for (size_t i = 0; i < 4; ++i) {
    const double expected = i == 0 ? 0.9 : 0.5;
    const double sigma = std::sqrt(expected * (1.0 - expected) / reached[i]);
    EXPECT_NEAR(accepted[i] / static_cast<double>(reached[i]), expected, 4.5 * sigma) << i;
  }
  EXPECT_THROW(make_rule("forced", {{"acceptance", std::vector<double>{}, ""}}), Error);
  EXPECT_THROW(make_rule("forced", {{"acceptance", std::vector<double>{1.5}, ""}}), Error);
}

TEST(TargetRows, TellsWhatItWasAsked) {
  TokenTree tree;
  tree.reset(3, 16);
  const std::vector<float> q = {0.25f, 0.25f, 0.25f, 0.25f};
  tree.add({.parent = 0, .token = 3, .q_row = tree.q.add_dense(q)});
  Sampler sampler({.temperature = 1.0f}, 4, {});
  const Tokens context = {3};
  const Judged judged(kSame, context, tree);
  TargetRows target = judged.target(sampler, tree, context);
  std::vector<Question> asked;
  target.listen(&asked);
  Verdict verdict;
  make_rule("rejection")->judge(tree, target, verdict);
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].kind, Question::Kind::accept);
  EXPECT_EQ(asked[0].node, 1);
  EXPECT_NEAR(asked[0].probability, 0.2, 1e-6);
  EXPECT_EQ(asked[0].accepted, asked[0].uniform < asked[0].probability);
  EXPECT_EQ(asked[1].kind, Question::Kind::draw);
  EXPECT_EQ(asked[1].token, verdict.token);
  EXPECT_EQ(asked[1].purpose, asked[0].accepted ? Purpose::bonus : Purpose::residual);
}

}  // namespace
}  // namespace coppice
