// The sampler against the plain definition of every warp, and the cases C005, C022, C028, C029,
// C035, C053, C055, C106, C107, C109, C110, C158 of public bug reports.
#include "core/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/shared/gumbel.h"
#include "kernels/shared/warp.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// What warp.h defines, step by step on plain arrays.
struct Oracle {
  SamplingParams params;
  int vocabulary;
  std::vector<int32_t> masked;

  std::vector<float> processed(std::vector<float> logits, const TokenContext& context) const {
    logits.resize(static_cast<size_t>(vocabulary));
    std::vector<int32_t> window(context.history.begin(), context.history.end());
    window.insert(window.end(), context.path.begin(), context.path.end());
    const size_t seen = std::min(window.size(), static_cast<size_t>(params.penalty_window));
    window.erase(window.begin(), window.end() - static_cast<ptrdiff_t>(seen));
    penalise(logits.data(), vocabulary, window.data(), static_cast<int>(window.size()),
             {params.repetition_penalty, params.presence_penalty, params.frequency_penalty});
    for (const auto& [token, bias] : params.logit_bias) logits[static_cast<size_t>(token)] += bias;
    for (const int32_t token : masked) logits[static_cast<size_t>(token)] = -kInfinity;
    return logits;
  }
  std::vector<double> weights(const std::vector<float>& row) const {
    std::vector<double> weight(row.size());
    warp_weights(row.data(), vocabulary,
                 {1.0 / params.temperature, params.top_k, params.top_p, params.min_p},
                 weight.data());
    return weight;
  }
  std::vector<float> probabilities(const std::vector<float>& row) const {
    const std::vector<double> weight = weights(row);
    uint64_t total = 0;
    for (const double w : weight) total += weight_units(w);
    std::vector<float> p;
    for (const double w : weight) {
      p.push_back(static_cast<float>(w / (static_cast<double>(total) * kWeightUnit)));
    }
    return p;
  }
  int32_t coupled(const std::vector<float>& row, int position) const {
    const std::vector<double> weight = weights(row);
    int32_t best = -1;
    double best_score = 0.0;
    for (int32_t i = 0; i < vocabulary; ++i) {
      const size_t at = static_cast<size_t>(i);
      if (weight[at] == 0.0) continue;
      const double score = coupled_score(row[at], 1.0 / params.temperature,
                                         target_noise({params.seed, params.request}, position, i));
      if (best < 0 || score > best_score) {
        best = i;
        best_score = score;
      }
    }
    return best;
  }
};

std::vector<float> random_logits(int vocabulary, uint32_t seed) {
  std::vector<float> logits;
  for (int i = 0; i < vocabulary; ++i) {
    const uint32_t word = target_noise({seed, 1000}, 0, i);
    logits.push_back(static_cast<float>(word % 40000) * 0.0005f - 10.0f);
  }
  return logits;
}

std::vector<float> copy(std::span<const float> x) {
  return {x.begin(), x.end()};
}

SamplingParams arbitrary_params(int vocabulary) {
  SamplingParams params;
  params.temperature = *rc::gen::element(0.25f, 0.7f, 1.0f, 2.5f);
  params.top_k = *rc::gen::element(0, 1, 2, 5, vocabulary, vocabulary + 1, 1000000000);
  params.top_p = *rc::gen::element(0.0f, 0.1f, 0.5f, 0.9f, 0.95f, 0.99999994f, 1.0f);
  params.min_p = *rc::gen::element(0.0f, 0.05f, 0.5f, 1.0f);
  params.repetition_penalty = *rc::gen::element(0.5f, 1.0f, 1.3f);
  params.presence_penalty = *rc::gen::element(-0.5f, 0.0f, 0.6f);
  params.frequency_penalty = *rc::gen::element(0.0f, 0.25f);
  params.penalty_window = *rc::gen::element(0, 1, 4, 64);
  params.seed = *rc::gen::arbitrary<uint64_t>();
  params.request = *rc::gen::arbitrary<uint32_t>();
  if (*rc::gen::arbitrary<bool>()) {
    params.logit_bias = {{*rc::gen::inRange(0, vocabulary), *rc::gen::element(-100.0f, 2.0f)}};
  }
  return params;
}

/// A coarse grid makes ties; some tokens are impossible, never all.
std::vector<float> arbitrary_logits(int count) {
  std::vector<float> logits;
  for (int i = 0; i < count; ++i) {
    const int grid = *rc::gen::inRange(-13, 13);
    logits.push_back(grid == -13 ? -kInfinity : 0.5f * static_cast<float>(grid));
  }
  logits[0] = 0.0f;
  return logits;
}

RC_GTEST_PROP(Sampler, EqualsTheDefinition, ()) {
  const int vocabulary = *rc::gen::inRange(1, 80);
  const SamplingParams params = arbitrary_params(vocabulary);
  std::vector<int32_t> masked;
  if (vocabulary > 2 && *rc::gen::arbitrary<bool>()) masked = {*rc::gen::inRange(1, vocabulary)};
  // Two rows of padding beyond the vocabulary.
  std::vector<float> logits = arbitrary_logits(vocabulary + 2);
  logits.back() = 1e6f;
  const auto history = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, vocabulary));
  const auto path = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, vocabulary));
  const TokenContext context{history, path};
  const int position = *rc::gen::inRange(0, 100000);

  Sampler sampler(params, vocabulary, masked);
  const Oracle oracle{params, vocabulary, masked};
  const std::vector<float> row = oracle.processed(logits, context);
  const std::vector<float> before = logits;
  RC_ASSERT(copy(sampler.probabilities(logits, context)) == oracle.probabilities(row));
  RC_ASSERT(sampler.coupled(logits, context, position) == oracle.coupled(row, position));
  RC_ASSERT(sampler.argmax(logits, context) ==
            std::max_element(row.begin(), row.end()) - row.begin());
  RC_ASSERT(logits == before);  // C055: nothing is changed in place
  // Text that is certain and text of a path count alike.
  std::vector<int32_t> all = history;
  all.insert(all.end(), path.begin(), path.end());
  RC_ASSERT(sampler.coupled(logits, {all, {}}, position) ==
            sampler.coupled(logits, context, position));
}

// Larger rows, where the nucleus is found without sorting all of them.
TEST(Sampler, EqualsTheDefinitionOnLongerRows) {
  for (const int vocabulary : {31, 33, 257, 1500}) {
    for (const float top_p : {0.3f, 0.9f, 0.99f, 0.9999f, 0.999999f}) {
      for (const float temperature : {0.5f, 1.0f, 3.0f}) {
        SamplingParams params{.temperature = temperature, .top_p = top_p};
        if (vocabulary == 257) params.top_k = 100;
        Sampler sampler(params, vocabulary, {});
        const Oracle oracle{params, vocabulary, {}};
        const std::vector<float> logits = random_logits(vocabulary, 3);
        EXPECT_EQ(copy(sampler.probabilities(logits, {})), oracle.probabilities(logits));
        EXPECT_EQ(sampler.coupled(logits, {}, 5), oracle.coupled(logits, 5));
      }
    }
  }
}

// C107
TEST(Sampler, WorksForAnyVocabulary) {
  for (const int vocabulary : {1, 2, 7, 31, 33, 40001}) {
    const std::vector<float> logits = random_logits(vocabulary, 8);
    for (const SamplingParams& params : {SamplingParams{}, SamplingParams{.temperature = 1.0f},
                                         SamplingParams{.temperature = 1.0f, .top_k = 40},
                                         SamplingParams{.temperature = 1.0f, .top_p = 0.95f},
                                         SamplingParams{.temperature = 1.0f, .min_p = 0.1f}}) {
      Sampler sampler(params, vocabulary, {});
      const int32_t token = sampler.coupled(logits, {}, 0);
      ASSERT_TRUE(token >= 0 && token < vocabulary);
      const std::span<const float> p = sampler.probabilities(logits, {});
      EXPECT_GT(p[static_cast<size_t>(token)], 0.0f);
      EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1.0, 1e-5);
    }
  }
}

TEST(Sampler, ProbabilitiesAreTheSoftmax) {
  const std::vector<float> logits = {1.0f, -2.0f, 0.5f, 3.0f};
  Sampler sampler({.temperature = 0.8f}, 4, {});
  double total = 0.0;
  for (const float x : logits) total += std::exp(x / 0.8f);
  const std::span<const float> p = sampler.probabilities(logits, {});
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(p[i], std::exp(logits[i] / 0.8f) / total, 1e-6);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  constexpr int kDraws = 30000;
  const std::vector<float> logits = {1.0f, 0.0f, 0.5f, -1.0f, 1.0f};
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1.0f}, SamplingParams{.temperature = 1.5f, .top_p = 0.8f}}) {
    Sampler sampler(params, 5, {});
    const std::vector<float> p = copy(sampler.probabilities(logits, {}));
    std::vector<int> coupled(5), draft(5);
    for (int position = 0; position < kDraws; ++position) {
      ++coupled[static_cast<size_t>(sampler.coupled(logits, {}, position))];
      ++draft[static_cast<size_t>(sampler.draw_draft(p, position, 1, 1))];
    }
    for (size_t i = 0; i < 5; ++i) {
      const double sigma = std::sqrt(p[i] * (1.0 - p[i]) / kDraws);
      EXPECT_NEAR(coupled[i] / static_cast<double>(kDraws), p[i], 4.5 * sigma);
      EXPECT_NEAR(draft[i] / static_cast<double>(kDraws), p[i], 4.5 * sigma);
    }
  }
}

TEST(Sampler, DraftDrawsHaveNoiseOfTheirOwn) {
  const std::vector<float> q(1000, 0.001f);
  Sampler sampler({.temperature = 1.0f, .seed = 4}, 1000, {});
  std::set<int32_t> drawn;
  for (int node = 1; node <= 5; ++node) drawn.insert(sampler.draw_draft(q, 10, 1, node));
  drawn.insert(sampler.draw_draft(q, 10, 2, 1));
  drawn.insert(sampler.draw_draft(q, 11, 1, 1));
  EXPECT_EQ(drawn.size(), 7u);
  EXPECT_EQ(sampler.draw_draft(std::vector<float>(1000, 0.0f), 10, 1, 1), -1);
}

TEST(Sampler, TheSameSeedAndRequestGiveTheSameText) {
  const std::vector<float> logits = random_logits(500, 1);
  const auto text = [&](uint64_t seed, uint32_t request) {
    Sampler sampler({.temperature = 1.0f, .seed = seed, .request = request}, 500, {});
    std::vector<int32_t> tokens;
    for (int position = 0; position < 10; ++position) {
      tokens.push_back(sampler.coupled(logits, {}, position));
    }
    return tokens;
  };
  EXPECT_EQ(text(1, 0), text(1, 0));
  EXPECT_NE(text(1, 0), text(2, 0));
  EXPECT_NE(text(1, 0), text(1, 1));
}

// C158: top_k 0 is off, not greedy by accident.
TEST(Sampler, TopKZeroIsOff) {
  const std::vector<float> logits = random_logits(500, 1);
  std::set<int32_t> drawn;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Sampler sampler({.temperature = 0.8f, .top_k = 0, .seed = seed}, 500, {});
    drawn.insert(sampler.coupled(logits, {}, 0));
  }
  EXPECT_GT(drawn.size(), 2u);
}

// C035: one tie rule, at the top and at the edge of top-k.
TEST(Sampler, TiesGoToTheLowestId) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, 2.0f, 1.0f, 1.0f};
  Sampler greedy({}, 6, {});
  EXPECT_EQ(greedy.argmax(logits, {}), 1);
  EXPECT_EQ(greedy.coupled(logits, {}, 3), 1);
  Sampler top3({.temperature = 1.0f, .top_k = 3}, 6, {});
  const std::span<const float> p = top3.probabilities(logits, {});
  EXPECT_GT(p[2], 0.0f);
  EXPECT_EQ(p[4], 0.0f);
  EXPECT_EQ(p[5], 0.0f);
  EXPECT_THAT(
      raw_log_probabilities(logits, 0, 4).most_likely,
      ElementsAre(::testing::Key(1), ::testing::Key(3), ::testing::Key(2), ::testing::Key(4)));
}

// C007: greedy requests never divide by their temperature.
TEST(Sampler, TemperatureZeroIsAPointMass) {
  const std::vector<float> logits = {-3.0f, -1.0f, -kInfinity, -1.0f};
  Sampler sampler({.temperature = 0.0f, .top_k = 3, .top_p = 0.5f}, 4, {});
  EXPECT_THAT(copy(sampler.probabilities(logits, {})), ElementsAre(0.0f, 1.0f, 0.0f, 0.0f));
  EXPECT_EQ(sampler.coupled(logits, {}, 7), 1);
}

TEST(Sampler, SmallTemperaturesApproachGreedy) {
  std::vector<float> logits = random_logits(500, 2);
  logits[321] = 11.0f;  // the others are below 10
  for (const float temperature : {1e-3f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
    Sampler sampler({.temperature = temperature}, 500, {});
    EXPECT_EQ(sampler.coupled(logits, {}, 0), 321);
    EXPECT_EQ(sampler.probabilities(logits, {})[321], 1.0f);
  }
}

// C028: once a distinct token, not once an occurrence.
TEST(Penalties, RepetitionCountsATokenOnce) {
  const std::vector<int32_t> history(50, 1);
  Sampler sampler({.temperature = 1.0f, .repetition_penalty = 1.1f}, 3, {});
  const std::vector<float> logits = {1.0f, 2.2f, -1.0f};
  const std::vector<float> expected = {1.0f, 2.2f / 1.1f, -1.0f};
  Sampler plain({.temperature = 1.0f}, 3, {});
  EXPECT_EQ(copy(sampler.probabilities(logits, {history, {}})),
            copy(plain.probabilities(expected, {})));
  // Negative logits are multiplied.
  const std::vector<int32_t> negative(50, 2);
  const std::vector<float> lower = {1.0f, 2.2f, -1.0f * 1.1f};
  EXPECT_EQ(copy(sampler.probabilities(logits, {negative, {}})),
            copy(plain.probabilities(lower, {})));
}

// C029: the last tokens of the window count, and a short history is no overrun.
TEST(Penalties, LookAtTheLastTokensOnly) {
  std::vector<int32_t> history;
  for (int32_t token = 0; token < 20; ++token) history.push_back(token);
  const std::vector<float> logits(20, 1.0f);
  Sampler sampler({.presence_penalty = 1.0f, .penalty_window = 8}, 20, {});
  EXPECT_EQ(sampler.argmax(logits, {history, {}}), 0);
  std::reverse(history.begin(), history.end());  // the last eight are now 7..0
  EXPECT_EQ(sampler.argmax(logits, {history, {}}), 8);
  const std::vector<int32_t> path = {8, 9};  // the window is now 5..0, 8, 9
  EXPECT_EQ(sampler.argmax(logits, {history, path}), 6);
  Sampler wide({.presence_penalty = 1.0f, .penalty_window = 64}, 20, {});
  EXPECT_EQ(wide.argmax(logits, {std::vector<int32_t>{0, 1, 2}, {}}), 3);
  EXPECT_EQ(wide.argmax(logits, {}), 0);
}

TEST(Penalties, PresenceOnceAndFrequencyByCount) {
  const std::vector<float> logits = {1.0f, 1.5f, 1.9f};
  const std::vector<int32_t> history = {2, 2, 2, 1};
  Sampler presence({.presence_penalty = 0.6f}, 3, {});
  EXPECT_EQ(presence.argmax(logits, {history, {}}), 2);  // 1.0, 0.9, 1.3
  Sampler frequency({.frequency_penalty = 0.4f}, 3, {});
  EXPECT_EQ(frequency.argmax(logits, {history, {}}), 1);  // 1.0, 1.1, 0.7
  const std::vector<int32_t> foreign = {-5, 3, 1000};     // no tokens of this vocabulary
  EXPECT_EQ(frequency.argmax(logits, {foreign, {}}), 2);
}

// C106: the output layer has more rows than there are tokens.
TEST(Sampler, PaddedAndMaskedTokensAreNeverDrawn) {
  std::vector<float> logits = random_logits(100, 4);
  for (size_t i = 90; i < 100; ++i) logits[i] = 100.0f;
  const std::vector<int32_t> masked = {3, 17, 95, 1000, -1};
  logits[17] = 50.0f;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 2.0f}, SamplingParams{.temperature = 2.0f, .top_p = 0.9f}}) {
    Sampler sampler(params, 90, masked);
    EXPECT_EQ(sampler.probabilities(logits, {}).size(), 90u);
    EXPECT_EQ(sampler.probabilities(logits, {})[17], 0.0f);
    EXPECT_NE(sampler.argmax(logits, {}), 17);
    for (int position = 0; position < 2000; ++position) {
      const int32_t token = sampler.coupled(logits, {}, position);
      ASSERT_TRUE(token >= 0 && token < 90 && token != 3 && token != 17);
    }
  }
}

}  // namespace
}  // namespace coppice
