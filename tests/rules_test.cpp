// Rules proved by enumeration: what they emit has the target's own joint distribution, at every
// warp. Sources: Leviathan 2023, Chen 2023, SpecInfer and Sequoia 2024, Daliri 2024; cases C001,
// C005, C007 and C022.
//
//   enumerate_case(rule, toy).deviation   // largest error of a sequence's probability
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "decoding/certificate.h"
#include "kernels/base/error.h"
#include "tests/toy_cases.h"

namespace coppice {
namespace {

using test::draft_row;
using test::kDraft;
using test::largest;
using test::sampled_chain_of_two;
using test::toy_with;

class EveryRule : public ::testing::TestWithParam<std::string_view> {};
class LosslessRule : public ::testing::TestWithParam<std::string_view> {};

std::vector<std::string_view> lossless_rules() {
  std::vector<std::string_view> names;
  for (const RuleEntry& rule : rules()) {
    if (rule.make({})->lossless()) names.push_back(rule.name);
  }
  return names;
}

TEST_P(LosslessRule, IsCertified) {
  const auto rule = make_rule(GetParam());
  EXPECT_EQ(rule->name(), GetParam());
  const Certificate certificate = certify_rule(*rule);
  EXPECT_TRUE(rule->lossless());
  EXPECT_GE(certificate.cases.size(), 120u);
  for (const CertifiedCase& one : certificate.cases) {
    EXPECT_LE(one.deviation, Certificate::kTolerance) << one.name;
    EXPECT_GE(one.runs, 1) << one.name;
  }
  EXPECT_TRUE(certificate.holds());
}

TEST_P(EveryRule, NeverWalksIntoAProbe) {
  const auto rule = make_rule(GetParam());
  const ToyCase toy = toy_with([](const Tokens&, Sampler&, Coins&, TokenTree& tree) {
    for (int32_t token = 0; token < 3; ++token) {
      tree.add({.parent = 0, .token = token, .role = NodeRole::probe});
    }
  });
  Sampler sampler(toy.sampling, 3, {});
  Enumeration coins;
  coins.for_each([&] {
    EXPECT_THAT(run_step(*rule, toy, sampler, {0}, coins, &coins).verdict.path,
                ::testing::IsEmpty());
  });
}

const auto name_of = [](const auto& tested) { return std::string(tested.param); };
INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, ::testing::ValuesIn(rule_names()), name_of);
INSTANTIATE_TEST_SUITE_P(Rules, LosslessRule, ::testing::ValuesIn(lossless_rules()), name_of);

TEST(Rules, MarkWhatTheyDoToTheText) {
  EXPECT_THAT(lossless_rules(), ::testing::ElementsAre("greedy", "coupled", "rejection"));
  EXPECT_EQ(mark_of(*make_rule("rejection")), "");
  EXPECT_EQ(mark_of(*make_rule("typical")), "lossy");
  EXPECT_EQ(mark_of(*make_rule("threshold")), "lossy");
  EXPECT_EQ(mark_of(*make_rule("forced")), "invalid");
  EXPECT_THROW(make_rule("typical", {{"epsilom", 0.1, "--set"}}), Error);
  EXPECT_THROW(make_rule("greedy", {{"epsilon", 0.1, "--set"}}), Error);
}

TEST(MakeRule, NamesTheRulesThereAre) {
  try {
    make_rule("typcal");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("typcal"), ::testing::HasSubstr("typical")));
  }
}

// Leviathan 2023, theorem 3.5: a drawn token is accepted with probability sum min(p, q).
TEST(Rejection, AcceptsOneMinusTotalVariation) {
  const auto rule = make_rule("rejection");
  const ToyCase toy = toy_with(sampled_chain_of_two);
  Sampler sampler(toy.sampling, 3, {});
  for (const Tokens& context : {Tokens{0}, Tokens{1, 2}, Tokens{2, 2, 1}}) {
    const std::vector<float> p = draft_row(toy.target, sampler, context);
    const std::vector<float> q = draft_row(kDraft, sampler, context);
    double overlap = 0.0;
    for (size_t i = 0; i < 3; ++i) overlap += std::min(p[i], q[i]);
    double accepted = 0.0;
    Enumeration coins;
    coins.for_each([&] {
      const ToyStep step = run_step(*rule, toy, sampler, context, coins, &coins);
      if (!step.verdict.path.empty()) accepted += coins.probability();
    });
    EXPECT_NEAR(accepted, overlap, 1e-6);
  }
}

// The walk itself, without the shortcut the rule takes at temperature 0: top-k 1 makes p a point
// mass, ties and all.
TEST(Rejection, ReducesToGreedyOnAPointMass) {
  const auto greedy = make_rule("greedy");
  const auto rejection = make_rule("rejection");
  for (ToyCase toy : certificate_cases()) {
    toy.sampling = {.temperature = 1.0f, .top_k = 1};
    Sampler sampler(toy.sampling, toy.vocabulary, {});
    for (int32_t last = 0; last < 3; ++last) {
      Enumeration coins;
      coins.for_each([&] {
        const ToyStep by_greedy = run_step(*greedy, toy, sampler, {0, last}, coins, &coins);
        EXPECT_EQ(run_step(*rejection, toy, sampler, {0, last}, coins, &coins).emitted.front(),
                  by_greedy.emitted.front());
      });
    }
  }
}

// What production draws by addressed noise has the enumerated distribution: accept, residual, bonus
// and draft noise are independent of each other.
TEST(Rejection, AddressedNoiseFollowsTheEnumeratedLaw) {
  const auto rule = make_rule("rejection");
  ToyCase toy = toy_with([](const Tokens& context, Sampler& sampler, Coins&, TokenTree& tree) {
    const int root = static_cast<int>(context.size()) - 1;
    Tokens path;
    for (int node = 0; node < 2; ++node) {
      const std::vector<float> q = draft_row(kDraft, sampler, context, path);
      path.push_back(sampler.draw_draft(q, root, node + 1, tree.size()));
      tree.add({.parent = node, .token = path.back(), .q_row = tree.q.add_dense(q)});
    }
  });
  const ToyCase enumerated = toy_with(sampled_chain_of_two);
  Sampler sampler(toy.sampling, 3, {});
  const Law exact = joint_law(
      [&](const Tokens& context, Coins& coins) {
        return run_step(*rule, enumerated, sampler, context, coins, &coins).emitted;
      },
      {0}, 3);
  constexpr int kTexts = 40000;
  Law counted;
  for (int seed = 0; seed < kTexts; ++seed) {
    SamplingParams params = toy.sampling;
    params.seed = static_cast<uint64_t>(seed);
    Sampler seeded(params, 3, {});
    Tokens text = {0};
    while (text.size() < 4) {
      Enumeration unused;
      const Tokens emitted = run_step(*rule, toy, seeded, text, unused, nullptr).emitted;
      text.insert(text.end(), emitted.begin(), emitted.end());
    }
    text.resize(4);
    counted[text] += 1.0 / kTexts;
  }
  for (const auto& [tokens, p] : exact) {
    const double sigma = std::sqrt(p * (1.0 - p) / kTexts);
    EXPECT_NEAR(counted[tokens], p, 4.5 * sigma) << tokens[1] << tokens[2] << tokens[3];
  }
}

TEST(Rejection, RefusesTokensOutsideTheVocabulary) {
  const auto rule = make_rule("rejection");
  const ToyCase toy = toy_with([](const Tokens&, Sampler&, Coins&, TokenTree& tree) {
    tree.add({.parent = 0, .token = 3});
  });
  Sampler sampler(toy.sampling, 3, {});
  Enumeration coins;
  EXPECT_DEATH(run_step(*rule, toy, sampler, {0}, coins, nullptr), "check failed");
}

// C001: every drafted token is compared, the first and only one too.
TEST(Greedy, AWrongDraftCostsNothingAndIsNeverEmitted) {
  const auto rule = make_rule("greedy");
  const ToyModel target{11, 3};
  const ToyCase toy = toy_with(
      [&](const Tokens& context, Sampler&, Coins&, TokenTree& tree) {
        const int32_t wrong = (largest(target(context)) + 1) % 3;
        tree.add({.parent = 0, .token = wrong});
      },
      {});
  Sampler sampler(toy.sampling, 3, {});
  Tokens text = {1, 1, 1};
  Enumeration unused;
  for (int i = 0; i < 20; ++i) {
    const ToyStep step = run_step(*rule, toy, sampler, text, unused, nullptr);
    EXPECT_THAT(step.verdict.path, ::testing::IsEmpty());
    EXPECT_THAT(step.emitted, ::testing::ElementsAre(largest(target(text))));
    text.push_back(step.emitted.front());
  }
}

// Of repeated siblings the first is taken: the children of the other are its own.
TEST(Greedy, TakesTheFirstOfRepeatedSiblings) {
  const auto rule = make_rule("greedy");
  const ToyModel target{11, 3};
  const ToyCase toy = toy_with(
      [&](const Tokens& context, Sampler&, Coins&, TokenTree& tree) {
        const int32_t best = largest(target(context));
        std::vector<float> q(3, 0.0f);
        q[static_cast<size_t>(best)] = 1.0f;
        const int row = tree.q.add_dense(q);
        tree.add({.parent = 0, .token = best, .q_row = row});
        const int repeat = tree.add({.parent = 0, .token = best, .q_row = row});
        for (int32_t token = 0; token < 3; ++token) tree.add({.parent = repeat, .token = token});
      },
      {});
  Sampler sampler(toy.sampling, 3, {});
  Enumeration unused;
  EXPECT_THAT(run_step(*rule, toy, sampler, {0}, unused, nullptr).verdict.path,
              ::testing::ElementsAre(1));
}

double acceptance_of(const std::vector<float>& p, const std::vector<float>& q) {
  double sum = 0.0;
  for (size_t j = 0; j < p.size(); ++j) {
    if (p[j] == 0.0f || q[j] == 0.0f) continue;
    double inverse = 0.0;
    for (size_t i = 0; i < p.size(); ++i) inverse += std::max(p[i] / p[j], q[i] / q[j]);
    sum += 1.0 / inverse;
  }
  return sum;
}

// Daliri et al. 2024: drafter and target that draw with the same noise agree this often.
TEST(Coupled, AcceptanceIsDalirisSum) {
  constexpr int kVocabulary = 8;
  constexpr int kDraws = 40000;
  for (uint64_t model = 0; model < 4; ++model) {
    const std::vector<float> p_logits = ToyModel{2 * model, kVocabulary}(Tokens{0});
    std::vector<float> q_logits = ToyModel{2 * model + 1, kVocabulary}(Tokens{0});
    // A draft model that knows something: half target, half its own.
    for (size_t i = 0; i < kVocabulary; ++i) q_logits[i] = 0.5f * (q_logits[i] + p_logits[i]);
    Sampler sampler({.temperature = 0.9f, .seed = model}, kVocabulary, {});
    int agreed = 0;
    for (int position = 0; position < kDraws; ++position) {
      agreed += sampler.coupled(p_logits, {}, position) == sampler.coupled(q_logits, {}, position);
    }
    const auto warped = [&](const std::vector<float>& logits) {
      const std::span<const float> row = sampler.probabilities(logits, {});
      return std::vector<float>(row.begin(), row.end());
    };
    const std::vector<float> p = warped(p_logits), q = warped(q_logits);
    const double expected = acceptance_of(p, q);
    const double sigma = std::sqrt(expected * (1.0 - expected) / kDraws);
    EXPECT_NEAR(agreed / static_cast<double>(kDraws), expected, 4.5 * sigma);
    double overlap = 0.0;
    for (size_t i = 0; i < kVocabulary; ++i) overlap += std::min(p[i], q[i]);
    const double variation = 1.0 - overlap;
    EXPECT_GE(expected, (1.0 - variation) / (1.0 + variation) - 1e-6);
    EXPECT_LE(expected, overlap + 1e-6);
  }
}

// A drafter that draws by the target's noise: its tree depends on what it is judged by, and the
// text is still the baseline's.
TEST(Coupled, TextIsTheBaselinesWhenTheDrafterSharesTheNoise) {
  const auto rule = make_rule("coupled");
  const ToyCase toy =
      toy_with([](const Tokens& context, Sampler& sampler, Coins&, TokenTree& tree) {
        Tokens path;
        for (int node = 0; node < 3; ++node) {
          Tokens all = context;
          all.insert(all.end(), path.begin(), path.end());
          const int position = static_cast<int>(all.size());
          path.push_back(sampler.coupled(kDraft(all), {context, path}, position));
          tree.add({.parent = node, .token = path.back()});
        }
      });
  int accepted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SamplingParams params = toy.sampling;
    params.seed = seed;
    Sampler sampler(params, 3, {});
    Tokens baseline = {0}, text = {0};
    while (baseline.size() < 16) {
      const int position = static_cast<int>(baseline.size());
      baseline.push_back(sampler.coupled(toy.target(baseline), {baseline, {}}, position));
    }
    while (text.size() < 16) {
      Enumeration unused;
      const ToyStep step = run_step(*rule, toy, sampler, text, unused, nullptr);
      accepted += static_cast<int>(step.verdict.path.size());
      text.insert(text.end(), step.emitted.begin(), step.emitted.end());
    }
    text.resize(16);
    EXPECT_EQ(text, baseline) << seed;
  }
  EXPECT_GT(accepted, 300);
}

}  // namespace
}  // namespace coppice
