// The certificate's checker refuses the faults that published code had: in the rule and, where
// tokens are drawn or dropped, in the drafter. Cases C001, C002, C004, C017 among them.
#include "tests/faulty_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/toy_cases.h"

namespace coppice {
namespace {

using test::draft_row;
using test::draw;
using test::Fault;
using test::kDraft;
using test::largest;
using test::sampled_chain_of_two;
using test::TextbookRule;
using test::toy_with;

constexpr double kClearlyWrong = 1e-3;

/// Two siblings without replacement from one row; `says_so` and `in_order` tell the truth or not.
ToyDrafter siblings_without_replacement(bool says_so, bool in_order) {
  return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
    std::vector<float> q = draft_row(kDraft, sampler, context);
    const int row = tree.q.add_dense(q, says_so);
    const int32_t first = draw(coins, q);
    q[static_cast<size_t>(first)] = 0.0f;
    const int32_t second = draw(coins, q);
    tree.add({.parent = 0, .token = in_order ? first : second, .q_row = row});
    tree.add({.parent = 0, .token = in_order ? second : first, .q_row = row});
  };
}

/// Three siblings with replacement.
void three_siblings(const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
  const std::vector<float> q = draft_row(kDraft, sampler, context);
  const int row = tree.q.add_dense(q);
  for (int i = 0; i < 3; ++i) tree.add({.parent = 0, .token = draw(coins, q), .q_row = row});
}

// The same walk without a fault passes, so that each fault alone is what the checker refuses.
TEST(FaultyRules, TheTextbookRuleIsExact) {
  const TextbookRule rule(Fault::none);
  for (const ToyDrafter& drafter : {ToyDrafter(sampled_chain_of_two), ToyDrafter(three_siblings)}) {
    EXPECT_LE(enumerate_case(rule, toy_with(drafter)).deviation, 1e-12);
    EXPECT_LE(enumerate_case(rule, toy_with(drafter, {.temperature = 0.8f, .top_k = 2})).deviation,
              1e-12);
  }
}

class EveryFault : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryFault, IsSeen) {
  const TextbookRule rule(GetParam());
  const SamplingParams warped{.temperature = 0.8f, .top_k = 2};
  const double chain = enumerate_case(rule, toy_with(sampled_chain_of_two, warped, 3)).deviation;
  const double siblings = enumerate_case(rule, toy_with(three_siblings)).deviation;
  EXPECT_GT(std::max(chain, siblings), kClearlyWrong);
}

INSTANTIATE_TEST_SUITE_P(Faults, EveryFault,
                         ::testing::Values(Fault::first_untested, Fault::residual_softmax,
                                           Fault::stale_sibling, Fault::bonus_unwarped,
                                           Fault::one_uniform));

struct FaultyDrafter {
  const char* name;
  ToyDrafter wrong, right;
  SamplingParams sampling = {.temperature = 1.0f};
};

std::vector<FaultyDrafter> faulty_drafters() {
  const auto deterministic = [](bool claims_softmax) {
    return [=](const Tokens& context, Sampler& sampler, Coins&, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      const int row = claims_softmax ? tree.q.add_dense(q) : kPointMass;
      tree.add({.parent = 0, .token = largest(q), .q_row = row});
    };
  };
  // C002: q of the raw logits for a token that was drawn from the warped ones.
  const auto reports = [](bool raw_logits) {
    return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      Sampler raw({.temperature = 1.0f}, 3, {});
      const int row = tree.q.add_dense(raw_logits ? draft_row(kDraft, raw, context) : q);
      tree.add({.parent = 0, .token = draw(coins, q), .q_row = row});
    };
  };
  // C017: q rounded after the draw.
  const auto rounds = [](bool after_drawing) {
    return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      std::vector<float> rounded = q;
      for (float& p : rounded) p = std::round(p * 16.0f + 0.5f) / 16.0f;
      const int row = tree.q.add_dense(rounded);
      const int32_t token = draw(coins, after_drawing ? q : rounded);
      tree.add({.parent = 0, .token = token, .q_row = row});
    };
  };
  const auto confident_only = [](bool after_drawing) {
    return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      if (!after_drawing && q[static_cast<size_t>(largest(q))] < 0.5f) return;
      const int32_t token = draw(coins, q);
      if (after_drawing && q[static_cast<size_t>(token)] < 0.5f) return;
      tree.add({.parent = 0, .token = token, .q_row = tree.q.add_dense(q)});
    };
  };
  const auto best_of_two = [](bool keeps_likelier) {
    return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      int32_t token = draw(coins, q);
      const int32_t other = draw(coins, q);
      if (keeps_likelier && q[static_cast<size_t>(other)] > q[static_cast<size_t>(token)]) {
        token = other;
      }
      tree.add({.parent = 0, .token = token, .q_row = tree.q.add_dense(q)});
    };
  };
  // Whether a child stays may not depend on what was drawn below it.
  const auto prunes = [](bool by_child) {
    return [=](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
      const std::vector<float> q = draft_row(kDraft, sampler, context);
      const int32_t token = draw(coins, q);
      const std::vector<float> below = draft_row(kDraft, sampler, context, {token});
      const int32_t child = draw(coins, below);
      if (by_child && child == 0) return;
      const int node = tree.add({.parent = 0, .token = token, .q_row = tree.q.add_dense(q)});
      tree.add({.parent = node, .token = child, .q_row = tree.q.add_dense(below)});
    };
  };
  const SamplingParams warped{.temperature = 0.7f, .top_k = 2};
  return {
      {"softmax q for a deterministic draft", deterministic(true), deterministic(false)},
      {"q from raw logits", reports(true), reports(false), warped},
      {"q rounded after drawing", rounds(true), rounds(false)},
      {"dropped for low confidence", confident_only(true), confident_only(false)},
      {"likelier of two draws", best_of_two(true), best_of_two(false)},
      {"dropped for its child", prunes(true), prunes(false)},
      {"without replacement, unsaid", siblings_without_replacement(false, true),
       siblings_without_replacement(true, true)},
      {"siblings out of order", siblings_without_replacement(true, false),
       siblings_without_replacement(true, true)},
  };
}

TEST(FaultyDrafters, AreSeenAndTheirRightFormsPass) {
  const auto rule = make_rule("rejection");
  for (const FaultyDrafter& drafter : faulty_drafters()) {
    EXPECT_GT(enumerate_case(*rule, toy_with(drafter.wrong, drafter.sampling)).deviation,
              kClearlyWrong)
        << drafter.name;
    EXPECT_LE(enumerate_case(*rule, toy_with(drafter.right, drafter.sampling)).deviation, 1e-12)
        << drafter.name;
  }
}

// Under coupled the same drafters are harmless: what is emitted never looks at the tree.
TEST(FaultyDrafters, AreHarmlessUnderCoupled) {
  const auto rule = make_rule("coupled");
  for (const FaultyDrafter& drafter : faulty_drafters()) {
    EXPECT_LE(enumerate_case(*rule, toy_with(drafter.wrong, drafter.sampling)).deviation, 1e-12)
        << drafter.name;
  }
}

// p = q = (1/2, 1/2), the draft kept only when it is A: A comes 3/4 of the
// time.
TEST(FaultyDrafters, KeepingOnlyAGivesAThreeQuarters) {
  ToyCase toy = toy_with([](const Tokens&, Sampler&, Coins& coins, TokenTree& tree) {
    const std::vector<float> q = {0.5f, 0.5f};
    const int32_t token = draw(coins, q);
    if (token == 0) tree.add({.parent = 0, .token = 0, .q_row = tree.q.add_dense(q)});
  });
  toy.vocabulary = 2;
  toy.target = [](std::span<const int32_t>) { return std::vector<float>{0.0f, 0.0f}; };
  const auto rule = make_rule("rejection");
  Sampler sampler(toy.sampling, 2, {});
  const Law law = joint_law(
      [&](const Tokens& context, Coins& coins) {
        return run_step(*rule, toy, sampler, context, coins, &coins).emitted;
      },
      {0}, 1);
  EXPECT_NEAR(law.at({0, 0}), 0.75, 1e-15);
}

}  // namespace
}  // namespace coppice
