// AdamW (Loshchilov 2019, "Decoupled Weight Decay Regularization", Alg. 2), its state in the open
// so that a checkpoint holds all of it.
//
//   AdamW optimiser(net.parameters());
//   optimiser.step(net.parameters(), learning_rate, decay, clip);
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "experiments/training/train_net.h"

namespace coppice {

struct AdamW {
  std::vector<at::Tensor> first, second;  // moments, by parameter
  int64_t steps = 0;

  explicit AdamW(const std::vector<TrainNet::Parameter>& parameters) {
    for (const auto& [name, value] : parameters) {
      first.push_back(at::zeros_like(value.detach()));
      second.push_back(at::zeros_like(value.detach()));
    }
  }

  /// Takes the gradients, cut to that norm, and clears them. Only matrices decay.
  void step(std::vector<TrainNet::Parameter>& parameters, double rate, double decay, double clip) {
    constexpr float kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f;
    const at::NoGradGuard no_gradients;
    ++steps;
    double squares = 0.0;
    for (auto& [name, value] : parameters) {
      if (value.grad().defined()) squares += value.grad().square().sum().item<double>();
    }
    const auto scale = static_cast<float>(std::min(1.0, clip / (std::sqrt(squares) + 1e-6)));
    const double unbiased1 = 1.0 - std::pow(kBeta1, static_cast<double>(steps));
    const double unbiased2 = 1.0 - std::pow(kBeta2, static_cast<double>(steps));
    const auto pace = static_cast<float>(rate / unbiased1);
    const auto widen = static_cast<float>(1.0 / std::sqrt(unbiased2));
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor& value = parameters[i].second;
      if (!value.grad().defined()) continue;
      const auto keep = static_cast<float>(value.dim() > 1 ? 1.0 - rate * decay : 1.0);
      if (!value.is_cpu()) {
        const at::Tensor gradient = value.grad() * scale;
        first[i].mul_(kBeta1).add_(gradient, 1.0f - kBeta1);
        second[i].mul_(kBeta2).addcmul_(gradient, gradient, 1.0f - kBeta2);
        value.mul_(keep).addcdiv_(first[i], second[i].sqrt().mul_(widen).add_(kEps), -pace);
        value.mutable_grad().zero_();
        continue;
      }
      float* w = value.data_ptr<float>();
      float* g = value.mutable_grad().data_ptr<float>();
      float* m = first[i].data_ptr<float>();
      float* v = second[i].data_ptr<float>();
      at::parallel_for(0, value.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) {
          const float gradient = g[j] * scale;
          m[j] = kBeta1 * m[j] + (1.0f - kBeta1) * gradient;
          v[j] = kBeta2 * v[j] + (1.0f - kBeta2) * gradient * gradient;
          w[j] = keep * w[j] - pace * m[j] / (std::sqrt(v[j]) * widen + kEps);
          g[j] = 0.0f;
        }
      });
    }
  }
};

}  // namespace coppice
