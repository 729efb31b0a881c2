// Noise and the mathematics under it: Philox against the published vectors, addresses that never
// collide, log and exp against long double, SIMD softmax weights against the plain definition.
// Source: Random123's known answers (Salmon et al. 2011).
#include "kernels/shared/noise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/cpu/softmax.h"
#include "kernels/shared/gumbel.h"
#include "kernels/shared/walk.h"
#include "kernels/shared/warp.h"

namespace coppice {
namespace {

using Words = std::array<uint32_t, 4>;

Words words(Philox4x32 r) {
  return {r.word[0], r.word[1], r.word[2], r.word[3]};
}

/// Arbitrary words for a test's own use.
class Arbitrary {
 public:
  uint32_t next() { return philox4x32({{count_++, 0, 0, 77}}, 1, 2).word[0]; }
  double between(double low, double high) { return low + (high - low) * next() * 0x1p-32; }

 private:
  uint32_t count_ = 0;
};

TEST(Philox, MeetsTheKnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(words(philox4x32({{0, 0, 0, 0}}, 0, 0)),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words(philox4x32({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes)),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      words(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0)),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, NoTwoAddressesShareACounter) {
  std::set<Words> counters;
  size_t addresses = 0;
  for (const uint32_t request : {0u, 1u, 7u}) {
    const NoiseKey key{5, request};
    for (int position = 0; position < 12; ++position) {
      for (int32_t token = 0; token < 40; token += 4) {  // one counter serves four tokens
        counters.insert(words(target_noise_counter(key, position, token)));
        ++addresses;
      }
      for (const Purpose purpose :
           {Purpose::accept, Purpose::residual, Purpose::bonus, Purpose::draft, Purpose::drafter}) {
        for (const int depth : {0, 1, 2, 3, kMaxNoiseDepth}) {
          for (const uint32_t lane : {0u, 1u, 2u, 9u, 0xffffffffu}) {
            counters.insert(words(noise_counter(key, position, depth, purpose, lane)));
            ++addresses;
          }
        }
      }
    }
  }
  EXPECT_EQ(counters.size(), addresses);
}

TEST(Noise, EveryPartOfAnAddressMatters) {
  const auto at = [](NoiseKey key, int position, int32_t token) {
    return target_noise(key, position, token);
  };
  const std::set<uint32_t> different = {
      at({1, 0}, 0, 0), at({2, 0}, 0, 0),      at({1ull << 32, 0}, 0, 0), at({1, 1}, 0, 0),
      at({1, 0}, 1, 0), at({1, 0}, 0, 1),      at({1, 0}, 0, 2),          at({1, 0}, 0, 3),
      at({1, 0}, 0, 4), at({1, 0}, 1 << 20, 0)};
  EXPECT_EQ(different.size(), 10u);
}

TEST(Noise, ATokensWordIsItsPlaceInTheBlock) {
  const NoiseKey key{42, 3};
  for (int32_t token = 0; token < 20; ++token) {
    EXPECT_EQ(target_noise(key, 9, token), target_noise_block(key, 9, token).word[token % 4]);
    EXPECT_EQ(words(target_noise_block(key, 9, token)),
              words(target_noise_block(key, 9, token - token % 4)));
  }
}

TEST(Noise, UniformsStayBelowOne) {
  EXPECT_EQ(to_uniform({{0, 0, 0, 0}}), 0.0);
  EXPECT_LT(to_uniform({{0xffffffffu, 0xffffffffu, 0, 0}}), 1.0);
  EXPECT_EQ(to_uniform({{0x80000000u, 0, 9, 9}}), 0.5);
}

TEST(Noise, InverseCdfNeverDrawsWeightZero) {
  const double weights[] = {0.0, 0.25, 0.0, 0.75, 0.0};
  EXPECT_EQ(inverse_cdf(weights, 5, 1.0, 0.0), 1);
  EXPECT_EQ(inverse_cdf(weights, 5, 1.0, 0.2499), 1);
  EXPECT_EQ(inverse_cdf(weights, 5, 1.0, 0.25), 3);
  EXPECT_EQ(inverse_cdf(weights, 5, 1.0, 1.0 - 0x1p-53), 3);
  EXPECT_EQ(inverse_cdf(weights, 5, 2.0, 0.9), 3);  // a total rounded up
  EXPECT_EQ(inverse_cdf(weights, 1, 1.0, 0.5), -1);
}

double ulps(double value, long double exact) {
  const double near = std::abs(static_cast<double>(exact));
  const double ulp = std::nextafter(near, std::numeric_limits<double>::infinity()) - near;
  return static_cast<double>(std::abs(value - exact)) / ulp;
}

TEST(Math, LogIsWithinOneAndAHalfUlps) {
  EXPECT_EQ(log_positive(1.0), 0.0);
  Arbitrary arbitrary;
  double worst = 0.0;
  for (int i = 0; i < 200000; ++i) {
    const double u = (arbitrary.next() + 0.5) * 0x1p-32;
    const double wide = std::ldexp(0.5 + u, static_cast<int>(arbitrary.next() % 2000) - 1000);
    for (const double x : {u, 1.0 - u * 0x1p-20, 1.0 + u * 0x1p-20, -log_positive(u), wide}) {
      if (x <= 0.0 || x == 1.0) continue;
      worst = std::max(worst, ulps(log_positive(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 1.5);
  EXPECT_GT(worst, 0.4);  // the comparison is not with itself
}

TEST(Math, ExpIsWithinOneAndAHalfUlps) {
  EXPECT_EQ(exp_nonpositive(0.0), 1.0);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(exp_nonpositive(-708.1), 0.0);
  EXPECT_GT(exp_nonpositive(-708.0), 0.0);
  Arbitrary arbitrary;
  double worst = 0.0;
  for (int i = 0; i < 200000; ++i) {
    for (const double low : {-708.0, -30.0, -1.0, -1e-9}) {
      const double x = arbitrary.between(low, 0.0);
      worst = std::max(worst, ulps(exp_nonpositive(x), std::exp(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 1.5);
  EXPECT_GT(worst, 0.4);
}

TEST(Gumbel, IsFiniteMonotoneAndBelowItsBound) {
  double before = -4.0;
  const auto check = [&before](uint32_t word) {
    const double g = gumbel(word);
    EXPECT_TRUE(g >= -3.14 && g <= 22.88) << word;
    EXPECT_GE(g, before) << word;
    EXPECT_LE(g, gumbel_bound(word)) << word;
    before = g;
  };
  for (uint32_t word = 0; word < 5000; ++word) check(word);
  for (uint64_t word = 5000; word < 0xfffff000u; word += 40009) check(static_cast<uint32_t>(word));
  for (uint64_t word = 0xfffff000u; word <= 0xffffffffu; ++word) check(static_cast<uint32_t>(word));
}

TEST(Gumbel, HasItsMeanAndVariance) {
  constexpr int kDraws = 400000;
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < kDraws; ++i) {
    const double g = gumbel(target_noise({9, 0}, i / 4096, i % 4096));
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5772156649, 4.5 * 1.2825 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.6449340668, 0.03);
}

TEST(SoftmaxWeights, EqualThePlainOnesOnEveryTarget) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Arbitrary arbitrary;
  int targets = 0;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const cpu::SoftmaxWeights kernel = cpu::softmax_weights_on(left & -left);
    ++targets;
    for (const int count : {1, 2, 3, 7, 8, 9, 31, 33, 1000}) {
      for (const double inverse_temperature : {1.0, 0.5, 1.0 / 0.7, 1e4}) {
        std::vector<float> x;
        for (int i = 0; i < count; ++i) {
          x.push_back(static_cast<float>(arbitrary.between(-40.0, 12.0)));
          if (arbitrary.next() % 9 == 0) x.back() = -kInfinity;
        }
        if (count == 1000)
          std::fill_n(x.begin() + 100, 700, -kInfinity);  // vectors of nothing else
        std::vector<double> weight(x.size(), -1.0);
        const uint64_t total = kernel(x.data(), count, 12.0f, inverse_temperature, weight.data());
        uint64_t expected = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          EXPECT_EQ(weight[i], softmax_weight(x[i], 12.0f, inverse_temperature));
          expected += weight_units(weight[i]);
        }
        EXPECT_EQ(total, expected);
        EXPECT_EQ(kernel(x.data(), count, 12.0f, inverse_temperature, nullptr), expected);
      }
    }
  }
  EXPECT_GE(targets, 1);
}

TEST(WeightUnits, AreNearestIntegers) {
  EXPECT_EQ(weight_units(0.0), 0u);
  EXPECT_EQ(weight_units(1.0), uint64_t{1} << 44);
  EXPECT_EQ(weight_units(0x1p-44), 1u);
  EXPECT_EQ(weight_units(0x1.8p-44), 2u);
  EXPECT_EQ(weight_units(0x1p-46), 0u);
}

}  // namespace
}  // namespace coppice
