// Percentiles and the bootstrap interval against values worked out by hand, A/A runs, and the
// coverage of the interval on data whose true ratio is known.
#include "experiments/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace coppice {
namespace {

using testing::ElementsAre;

std::optional<Ratio> ratio(std::vector<double> numerator, std::vector<double> denominator) {
  return ratio_of_sums(numerator, denominator);
}

TEST(Percentile, HandComputed) {
  const std::vector<double> values = {40, 10, 30, 20};  // sorted ranks 0..3
  EXPECT_DOUBLE_EQ(*percentile(values, 0.0), 10);
  EXPECT_DOUBLE_EQ(*percentile(values, 0.5), 25);     // rank 1.5
  EXPECT_DOUBLE_EQ(*percentile(values, 0.9), 37);     // rank 2.7
  EXPECT_DOUBLE_EQ(*percentile(values, 0.99), 39.7);  // rank 2.97
  EXPECT_DOUBLE_EQ(*percentile(values, 1.0), 40);
}

TEST(Percentile, OneValueIsEveryPercentileAndNoneIsUndefined) {
  EXPECT_DOUBLE_EQ(*percentile(std::vector<double>{7}, 0.99), 7);
  EXPECT_FALSE(percentile(std::vector<double>{}, 0.5));
  EXPECT_FALSE(percentiles(std::vector<double>{}).p90);
}

TEST(Middle, OrderStatisticsBoundTheMedian) {
  // Of 9 values the true median lies between the 2nd and the 8th but for 2 (1 + 9) / 2^9 = 3.9 %;
  // the 3rd and 7th would miss it in 18 %.
  const Middle nine = middle_of(std::vector<double>{9, 1, 8, 2, 7, 3, 6, 4, 5});
  EXPECT_EQ(nine.median, 5);
  EXPECT_EQ(nine.ci95.low, 2);
  EXPECT_EQ(nine.ci95.high, 8);
  // Of 8: the 1st and 8th (0.8 %), not the 2nd and 7th (7.0 %).
  const Middle eight = middle_of(std::vector<double>{8, 1, 7, 2, 6, 3, 5, 4});
  EXPECT_EQ(eight.median, 4.5);
  EXPECT_EQ(eight.ci95.low, 1);
  EXPECT_EQ(eight.ci95.high, 8);
  EXPECT_EQ(middle_of(std::vector<double>{3}).ci95.low, 3);
}

TEST(Ratio, IsOfSumsNotTheMeanOfRatios) {
  // 10/1 and 10/10: the ratio of sums is 20/11, the mean of ratios 5.5.
  EXPECT_DOUBLE_EQ(ratio({10, 10}, {1, 10})->value, 20.0 / 11.0);
}

TEST(Ratio, TwoPairsResampleToThreeValuesWithKnownWeights) {
  // Draws of two pairs: (a,a) 1/4 -> 10, mixed 1/2 -> 20/11, (b,b) 1/4 -> 1. Each end holds more
  // than 2.5 % of the draws, so the interval is their range.
  const auto r = ratio({10, 10}, {1, 10});
  EXPECT_DOUBLE_EQ(r->ci95->low, 1.0);
  EXPECT_DOUBLE_EQ(r->ci95->high, 10.0);
}

TEST(Ratio, AnArmAgainstItselfIsExactlyOne) {
  const std::vector<double> times = {3.25, 8.5, 1.125, 9, 4.75};
  const auto r = ratio_of_sums(times, times);
  EXPECT_EQ(r->value, 1.0);
  EXPECT_EQ(r->ci95->low, 1.0);
  EXPECT_EQ(r->ci95->high, 1.0);
}

TEST(Ratio, AConstantSpeedupHasNoWidth) {
  const std::vector<double> method = {3.25, 8.5, 1.125, 9, 4.75};
  std::vector<double> baseline = method;
  for (double& t : baseline) t *= 2;
  const auto r = ratio_of_sums(baseline, method);
  EXPECT_EQ(r->ci95->low, 2.0);
  EXPECT_EQ(r->ci95->high, 2.0);
}

TEST(Ratio, WhatCannotBeKnownIsEmpty) {
  EXPECT_FALSE(ratio({}, {}));
  EXPECT_FALSE(ratio({1, 2}, {0, 0}));
  const auto one = ratio({3}, {2});
  EXPECT_DOUBLE_EQ(one->value, 1.5);
  EXPECT_FALSE(one->ci95);
}

TEST(Ratio, IsReproducible) {
  const std::vector<double> a = {3, 1, 4, 1, 5, 9, 2, 6}, b = {2, 7, 1, 8, 2, 8, 1, 8};
  const auto first = ratio_of_sums(a, b), second = ratio_of_sums(a, b);
  EXPECT_EQ(first->ci95->low, second->ci95->low);
  EXPECT_EQ(first->ci95->high, second->ci95->high);
  EXPECT_LT(first->ci95->low, first->value);
  EXPECT_GT(first->ci95->high, first->value);
}

/// Share of `runs` experiments whose interval holds the true ratio. A prompt's times share its
/// length, as in a benchmark; both arms carry noise of their own.
double coverage(double true_ratio, int prompts, int runs) {
  std::mt19937_64 generator(5);
  std::lognormal_distribution<double> length(0.0, 0.5), noise(0.0, 0.1);
  int inside = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<double> baseline, method;
    for (int i = 0; i < prompts; ++i) {
      const double size = length(generator);
      baseline.push_back(true_ratio * size * noise(generator));
      method.push_back(size * noise(generator));
    }
    const auto r = ratio_of_sums(baseline, method, 1000);
    inside += r->ci95->low <= true_ratio && true_ratio <= r->ci95->high;
  }
  return static_cast<double>(inside) / runs;
}

TEST(Ratio, TheIntervalHoldsTheTruthNineteenTimesInTwenty) {
  // 400 runs: the standard error of a 95 % share is 1.1 %; the percentile bootstrap covers a
  // little less than its name at few prompts.
  EXPECT_GT(coverage(1.5, 24, 400), 0.90);
  EXPECT_LT(coverage(1.5, 24, 400), 0.985);
}

TEST(Ratio, AnAaExperimentWithNoiseIsRarelyCalledADifference) {
  EXPECT_GT(coverage(1.0, 24, 400), 0.90);
}

/// Of times a token as a baseline has them: noise, and a share that grows with the context.
double drift_of_baseline(double last_third, unsigned seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> size(50, 800);
  std::normal_distribution<double> noise(0.0, 0.03);
  std::vector<double> times, sizes;
  for (int i = 0; i < 24; ++i) {
    sizes.push_back(size(generator));
    times.push_back((2.5 + 0.0005 * sizes.back()) * (1.0 + noise(generator)) *
                    (i >= 16 ? last_third : 1.0));
  }
  return *drift_of(times, sizes);
}

TEST(Drift, AMachineThatSlowedDownIsSeenAndASteadyOneIsNot) {
  int seen = 0, alarms = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    seen += drift_of_baseline(1.2, seed) > kMostDrift;
    alarms += drift_of_baseline(1.0, seed) > kMostDrift;
  }
  EXPECT_GT(seen, 190);
  EXPECT_LT(alarms, 6);
}

TEST(Drift, HandComputed) {
  // No scatter within a third, sizes that explain nothing.
  const std::vector<double> times = {10, 10, 10, 11, 11, 11, 10, 10, 10}, sizes(9, 1.0);
  EXPECT_DOUBLE_EQ(*drift_of(times, sizes), 0.1);
  EXPECT_FALSE(drift_of(std::span(times).first(8), std::span(sizes).first(8)));
}

TEST(Drift, WhatTheContextExplainsIsNoDrift) {
  std::vector<double> times, sizes;
  for (int i = 0; i < 12; ++i) {
    sizes.push_back(100.0 * i);
    times.push_back(2.0 + 0.001 * sizes.back());
  }
  EXPECT_NEAR(*drift_of(times, sizes), 0.0, 1e-12);
}

TEST(Shuffle, IsAPermutationThatTheSeedAndLaneDecide) {
  const auto order = shuffled(24, 1, 0);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 24; ++i) EXPECT_EQ(sorted[static_cast<size_t>(i)], i);
  EXPECT_EQ(order, shuffled(24, 1, 0));
  EXPECT_NE(order, shuffled(24, 2, 0));
  EXPECT_NE(order, shuffled(24, 1, 1));
  EXPECT_TRUE(shuffled(0, 1, 0).empty());
  EXPECT_THAT(shuffled(1, 1, 0), ElementsAre(0));
}

TEST(Shuffle, EveryOrderIsEquallyLikely) {
  std::vector<int> seen(6);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    const auto order = shuffled(3, seed, 0);
    ++seen[static_cast<size_t>(2 * order[0] + (order[1] > order[2]))];
  }
  // 1000 each; 150 is more than five standard deviations.
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace coppice
