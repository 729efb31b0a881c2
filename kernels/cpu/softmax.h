// Softmax weights of one row of logits, vectorised: what top-p, probabilities and log-probabilities
// need of a whole vocabulary. Same bits as kernels/shared/warp.h on every dispatch target.
//
//   uint64_t total = softmax_weights(logits, logits[argmax(logits)], 1.0 / t, weight);
#pragma once

#include <cstdint>
#include <span>

namespace coppice::cpu {

/// weight[i] = softmax_weight(x[i], max, inverse_temperature), as many as x has; returns their sum
/// in weight units (kWeightUnit). No x[i] is above max; a NaN has weight 0. Without `weight`, the
/// sum alone.
uint64_t softmax_weights(std::span<const float> x, float max, double inverse_temperature,
                         double* weight);

using SoftmaxWeights = uint64_t (*)(const float* x, int n, float max, double inverse_temperature,
                                    double* weight);
/// The same on one of Highway's targets.
SoftmaxWeights softmax_weights_on(int64_t target);

}  // namespace coppice::cpu
