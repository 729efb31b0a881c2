// AdamW (Loshchilov 2019, "Decoupled Weight Decay Regularization", Alg. 2), its state in the open
// so that a checkpoint holds all of it.
//
//   AdamW optimiser(net.parameters());
//   optimiser.step(net.parameters(), learning_rate, decay, clip);
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "experiments/training/head_net.h"

namespace coppice {

struct AdamW {
  std::vector<at::Tensor> first, second;  // moments, by parameter
  int64_t steps = 0;

  explicit AdamW(const std::vector<HeadNet::Parameter>& parameters) {
    for (const auto& [name, value] : parameters) {
      first.push_back(at::zeros_like(value.detach()));
      second.push_back(at::zeros_like(value.detach()));
    }
  }

  /// Takes the gradients, cut to that norm, and clears them. Only matrices decay.
  void step(std::vector<HeadNet::Parameter>& parameters, double rate, double decay, double clip) {
    constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8;
    const at::NoGradGuard no_gradients;
    ++steps;
    double squares = 0.0;
    for (auto& [name, value] : parameters) {
      if (value.grad().defined()) squares += value.grad().square().sum().item<double>();
    }
    const double scale = std::min(1.0, clip / (std::sqrt(squares) + 1e-6));
    const double unbiased1 = 1.0 - std::pow(kBeta1, static_cast<double>(steps));
    const double unbiased2 = 1.0 - std::pow(kBeta2, static_cast<double>(steps));
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& value = parameters[i].second;
      if (!value.grad().defined()) continue;
      const at::Tensor gradient = value.grad() * scale;
      first[i].mul_(kBeta1).add_(gradient, 1.0 - kBeta1);
      second[i].mul_(kBeta2).addcmul_(gradient, gradient, 1.0 - kBeta2);
      if (value.dim() > 1) value.mul_(1.0 - rate * decay);
      value.addcdiv_(first[i] / unbiased1, (second[i] / unbiased2).sqrt().add_(kEps), -rate);
      value.mutable_grad().zero_();
    }
  }
};

}  // namespace coppice
