// Draft heads as tensors with gradients: the networks of drafters/medusa.h, drafters/hydra.h and
// decoding/feature_layer.h, run over a whole text at once, and their losses. Parameters have the
// names they have in a head's file. Sources: Cai 2024 (Medusa), section 2.2.1; Ankner 2024 (Hydra);
// Li 2024 (EAGLE), section 3.2; Li 2025 (EAGLE-3), section 3.2 (training-time test).
//
//   HeadNet net(config, target, 1, at::kFloat);
//   HeadLoss loss = net.loss(example, options);
//   loss.total.backward();
#pragma once

#include <string>
#include <vector>

#include "experiments/training/train_net.h"

namespace coppice {

class HeadNet : public TrainNet {
 public:
  /// Random weights by the seed, of that element type; what the target can give is copied from it.
  HeadNet(const HeadConfig& config, const TargetTensors& target, uint64_t seed,
          at::ScalarType type);

  /// Row r of step k: logits over the draft vocabulary of token first_row(k) + r + 2, drafted k
  /// tokens behind the last true state, when the tokens between are the text's: (tokens - 2 -
  /// first_row(k), draft vocabulary).
  std::vector<at::Tensor> forward(const Example& example, int steps) const;
  /// What comes before the answer is not guessed at.
  static int64_t first_row(const Example& example, int step);
  HeadLoss loss(const Example& example, const LoopOptions& options) const override;
  void count_hits(const Example& example, int steps, Hits& hits) const override;

 private:
  void add_matrix(const std::string& name, int64_t rows, int64_t cols, double gain = 1.0);
  at::Tensor blocks(at::Tensor x, int head, int first) const;
  std::vector<at::Tensor> medusa(const Example& example, int steps) const;
  std::vector<at::Tensor> hydra(const Example& example, int steps) const;
  std::vector<at::Tensor> unroll(const Example& example, int steps, double noise,
                                 at::Tensor* features) const;
};

}  // namespace coppice
