// What the sampler refuses, which parameters are out of range, and raw log-probabilities: the cases
// C053, C055, C109 and C110 of public bug reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/sampling.h"
#include "decoding/certificate.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Call>
std::string failure_of(Call call) {
  try {
    call();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

// C109
TEST(Sampler, RefusesRowsWithoutAnAnswer) {
  const std::vector<SamplingParams> all_params = {{},
                                                  {.temperature = 1.0f},
                                                  {.temperature = 1.0f, .top_k = 2},
                                                  {.temperature = 1.0f, .top_p = 0.9f}};
  for (const SamplingParams& params : all_params) {
    Sampler sampler(params, 3, {});
    const auto refuses = [&](const std::vector<float>& row, const std::string& reason) {
      EXPECT_THAT(failure_of([&] { sampler.argmax(row, {}); }), HasSubstr(reason));
      EXPECT_THAT(failure_of([&] { sampler.coupled(row, {}, 0); }), HasSubstr(reason));
      EXPECT_THAT(failure_of([&] { sampler.probabilities(row, {}); }), HasSubstr(reason));
    };
    refuses({0.0f, kNan, 1.0f}, "NaN, at token 1");
    refuses({-kInfinity, -kInfinity, kNan}, "NaN, at token 2");
    refuses({0.0f, 1.0f, kInfinity}, "+infinity, at token 2");
    refuses({-kInfinity, -kInfinity, -kInfinity}, "no token is left");
    EXPECT_EQ(sampler.argmax(std::vector<float>{-kInfinity, -5.0f, -kInfinity}, {}), 1);
    EXPECT_EQ(sampler.coupled(std::vector<float>{-kInfinity, -5.0f, -kInfinity}, {}, 1), 1);

    SamplingParams biased = params;
    biased.logit_bias = {{0, -kInfinity}, {1, -kInfinity}, {2, -kInfinity}};
    Sampler forbidden(biased, 3, {});
    EXPECT_THAT(failure_of([&] { forbidden.coupled(std::vector<float>(3, 1.0f), {}, 0); }),
                HasSubstr("no token is left"));
    Sampler masked(params, 3, std::vector<int32_t>{0, 1, 2});
    EXPECT_THAT(failure_of([&] { masked.argmax(std::vector<float>(3, 1.0f), {}); }),
                HasSubstr("no token is left"));
  }
}

std::string error_of(const SamplingParams& params, int vocabulary = 5) {
  try {
    validate(params, vocabulary);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// C110
TEST(Validate, NamesTheParameterAndItsRange) {
  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(error_of({.temperature = 1.0f, .top_k = 50}), "");
  EXPECT_EQ(error_of({.top_k = 1000000000, .top_p = 0.0f, .min_p = 1.0f}), "");
  EXPECT_THAT(error_of({.temperature = -1.0f}), HasSubstr("temperature is -1"));
  EXPECT_THAT(error_of({.temperature = kInfinity}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({.temperature = kNan}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({.top_k = -1}), HasSubstr("top_k is -1"));
  EXPECT_THAT(error_of({.top_p = 1.5f}), HasSubstr("top_p is 1.5; it must be in 0..1"));
  EXPECT_THAT(error_of({.top_p = kNan}), HasSubstr("top_p"));
  EXPECT_THAT(error_of({.min_p = -0.5f}), HasSubstr("min_p"));
  EXPECT_THAT(error_of({.repetition_penalty = 0.0f}), HasSubstr("repetition_penalty"));
  EXPECT_THAT(error_of({.presence_penalty = kNan}), HasSubstr("presence_penalty"));
  EXPECT_THAT(error_of({.frequency_penalty = kInfinity}), HasSubstr("frequency_penalty"));
  EXPECT_THAT(error_of({.penalty_window = -1}), HasSubstr("penalty_window"));
  EXPECT_THAT(error_of({.logit_bias = {{5, 1.0f}}}), HasSubstr("token 5; tokens are 0..4"));
  EXPECT_THAT(error_of({.logit_bias = {{-1, 1.0f}}}), HasSubstr("token -1"));
  EXPECT_THAT(error_of({.logit_bias = {{1, kNan}}}), HasSubstr("logit_bias"));
  EXPECT_THAT(error_of({.logit_bias = {{1, 1.0f}, {2, 0.0f}, {1, 3.0f}}}), HasSubstr("1 twice"));
  EXPECT_THROW(Sampler({.top_p = 2.0f}, 5, {}), Error);
}

// C053 and C055: the model's own log softmax, whatever is sampled.
TEST(LogProbability, IsOfTheRawLogits) {
  const std::vector<float> logits = ToyModel{5, 333}(Tokens{0});
  double total = 0.0;
  for (const float x : logits) total += std::exp(static_cast<double>(x));
  const RawLogProbabilities result = raw_log_probabilities(logits, 12, 3);
  EXPECT_NEAR(result.token, logits[12] - std::log(total), 1e-5);
  ASSERT_EQ(result.most_likely.size(), 3u);
  const auto best = std::max_element(logits.begin(), logits.end());
  EXPECT_EQ(result.most_likely[0].first, best - logits.begin());
  EXPECT_NEAR(result.most_likely[0].second, *best - std::log(total), 1e-5);
  EXPECT_GE(result.most_likely[0].second, result.most_likely[1].second);
  EXPECT_GE(result.most_likely[1].second, result.most_likely[2].second);
}

TEST(LogProbability, BearsTheEdges) {
  const std::vector<float> logits = {0.0f, -kInfinity};
  EXPECT_EQ(raw_log_probabilities(logits, 0, 0).token, 0.0f);
  EXPECT_EQ(raw_log_probabilities(logits, 1, 0).token, -kInfinity);
  EXPECT_EQ(raw_log_probabilities(logits, 1, 9).most_likely.size(), 2u);
  EXPECT_THAT(failure_of([] {
                raw_log_probabilities(std::vector<float>{0.0f, kNan}, 0, 0);
              }),
              HasSubstr("NaN"));
}

}  // namespace
}  // namespace coppice
