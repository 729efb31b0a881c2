// The cpu backend's functions over a row of logits against plain loops, on every target: ties,
// -inf, NaN, and Gumbel-max token for token as its definition.
#include "kernels/cpu/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/simd.h"
#include "kernels/shared/gumbel.h"

namespace coppice::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kSizes[] = {1, 2, 7, 31, 33, 64, 129, 1000};

struct Target {
  const char* name;
  int64_t bit;
};

std::vector<Target> targets() {
  std::vector<Target> out;
  for (int64_t bit : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}}) {
    if ((hwy::SupportedTargets() & HWY_TARGETS & bit) != 0) {
      out.push_back({hwy::TargetName(bit), bit});
    }
  }
  out.push_back({"scalar", 0});
  return out;
}

class VocabularyTest : public testing::TestWithParam<Target> {
 protected:
  const VocabularyKernels& kernels_ = vocabulary_kernels(GetParam().bit);
  std::mt19937 random_{7};

  /// Few distinct values, so that ties are common, or none alike.
  std::vector<float> row(int n, bool ties) {
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> x(n);
    for (float& value : x) value = ties ? std::round(normal(random_)) : normal(random_);
    return x;
  }
};

std::vector<int32_t> plain_order(const std::vector<float>& x) {
  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::isnan(x[b]) ? !std::isnan(x[a]) : x[a] > x[b];
  });
  return order;
}

TEST_P(VocabularyTest, ArgmaxIsTheFirstOfTheLargest) {
  for (int n : kSizes) {
    for (int trial = 0; trial < 50; ++trial) {
      const auto x = row(n, trial % 2 == 0);
      EXPECT_EQ(kernels_.argmax(x.data(), n), plain_order(x)[0]);
    }
    const std::vector<float> nothing(n, -kInfinity);
    EXPECT_EQ(kernels_.argmax(nothing.data(), n), 0);
  }
}

TEST_P(VocabularyTest, ArgmaxSeesANaNAnywhere) {
  for (int n : kSizes) {
    for (int at : {0, n / 2, n - 1}) {
      auto x = row(n, false);
      x[at] = std::nanf("");
      EXPECT_EQ(kernels_.argmax(x.data(), n), kNotANumber) << n << " at " << at;
      EXPECT_EQ(kernels_.gumbel_argmax(x.data(), n, 1.0, {}, 0), kNotANumber);
    }
  }
}

TEST_P(VocabularyTest, TopKIsASortedPrefix) {
  for (int n : kSizes) {
    for (int k : {1, 2, 10, 64, n}) {
      if (k > n) continue;
      for (int trial = 0; trial < 20; ++trial) {
        auto x = row(n, trial % 2 == 0);
        if (trial % 5 == 4) {
          for (int i = 0; i < n; i += 3) x[i] = i % 2 == 0 ? std::nanf("") : -kInfinity;
        }
        std::vector<int32_t> index(k);
        std::vector<float> value(k);
        kernels_.top_k(x.data(), n, k, index.data(), value.data());
        auto expected = plain_order(x);
        expected.resize(k);
        ASSERT_EQ(index, expected) << "n " << n << " k " << k;
        for (int i = 0; i < k; ++i) {
          ASSERT_TRUE(value[i] == x[index[i]] || std::isnan(x[index[i]]));
        }
      }
    }
  }
}

int32_t plain_gumbel_argmax(const std::vector<float>& x, double inverse_temperature, NoiseKey key,
                            int position) {
  int32_t best = 0;
  double best_score = -std::numeric_limits<double>::infinity();
  for (int32_t i = 0; i < static_cast<int32_t>(x.size()); ++i) {
    const double score = coupled_score(x[i], inverse_temperature, target_noise(key, position, i));
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

TEST_P(VocabularyTest, GumbelArgmaxIsItsDefinition) {
  std::uniform_int_distribution<int> pick(0, 1 << 30);
  constexpr double kTemperatures[] = {1.0, 0.7, 2.0, 0.05, 30.0};
  constexpr int kRows = 10000;
  for (int trial = 0; trial < kRows; ++trial) {
    const int n = trial % 500 == 499 ? 40001 : kSizes[trial % std::size(kSizes)];
    auto x = row(n, trial % 3 == 0);
    if (trial % 4 == 0) {
      for (float& value : x) value = pick(random_) % 2 == 0 ? -kInfinity : value;
    }
    if (trial % 7 == 0) {  // flat: only the noise decides
      for (float& value : x) value = value == -kInfinity ? value : 1.5f;
    }
    const double inverse_temperature = 1.0 / kTemperatures[trial % std::size(kTemperatures)];
    const NoiseKey key{static_cast<uint64_t>(pick(random_)) << 20, static_cast<uint32_t>(trial)};
    const int position = pick(random_) % 100000;
    ASSERT_EQ(kernels_.gumbel_argmax(x.data(), n, inverse_temperature, key, position),
              plain_gumbel_argmax(x, inverse_temperature, key, position))
        << "n " << n << " trial " << trial;
  }
}

TEST_P(VocabularyTest, GumbelArgmaxKeepsItsDefinitionForHugeLogits) {
  for (float scale : {1e8f, 1e20f, 3e38f}) {  // noise vanishes in rounding: ties by index
    for (int n : kSizes) {
      std::vector<float> x(n, scale);
      for (int i = 0; i < n; i += 3) x[i] = -scale;
      EXPECT_EQ(kernels_.gumbel_argmax(x.data(), n, 1.0, {9, 1}, 5),
                plain_gumbel_argmax(x, 1.0, {9, 1}, 5));
      EXPECT_EQ(kernels_.gumbel_argmax(x.data(), n, 1e12, {9, 1}, 5),
                plain_gumbel_argmax(x, 1e12, {9, 1}, 5));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, VocabularyTest, testing::ValuesIn(targets()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace coppice::cpu
