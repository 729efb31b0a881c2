// What every trained network is held to: made-up examples in double precision, and gradients by
// finite differences.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "experiments/training/train_net.h"

namespace coppice::test {

inline TargetTensors as_double(TargetTensors target) {
  target.embedding = target.embedding.to(at::kDouble);
  target.output = target.output.to(at::kDouble);
  target.norm = target.norm.to(at::kDouble);
  return target;
}

/// A text with an answer from its sixth token on, and states that belong to no model.
inline Example random_example(const HeadConfig& config, int tokens, uint64_t seed) {
  at::manual_seed(seed);
  Example made;
  made.tokens = at::randint(config.target.vocabulary, {tokens}, at::kLong);
  made.states =
      at::randn({static_cast<int64_t>(config.taps.size()), tokens, config.target.dim}, at::kDouble);
  made.last = made.states.size(0) == 1 ? made.states[0]
                                       : at::randn({tokens, config.target.dim}, at::kDouble);
  made.answer = 5;
  return made;
}

/// Three entries of every parameter, drawn by `random`.
inline void expect_gradients_of_differences(TrainNet& net, const Example& example,
                                            const LoopOptions& options, std::mt19937& random) {
  net.loss(example, options).total.backward();
  for (auto& [name, value] : net.parameters()) {
    const at::Tensor gradient = value.grad().clone();
    for (int trial = 0; trial < 3; ++trial) {
      const int64_t entry = random() % static_cast<uint64_t>(value.numel());
      double* stored = value.data_ptr<double>() + entry;
      const double before = *stored;
      constexpr double kStep = 1e-5;
      *stored = before + kStep;
      const double above = net.loss(example, options).total.item<double>();
      *stored = before - kStep;
      const double below = net.loss(example, options).total.item<double>();
      *stored = before;
      const double expected = (above - below) / (2.0 * kStep);
      const double got = gradient.view({-1})[entry].item<double>();
      EXPECT_NEAR(got, expected, 1e-6 + 1e-4 * std::abs(expected))
          << net.config().kind << " " << name;
    }
  }
}

}  // namespace coppice::test
