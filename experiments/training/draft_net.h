// The small draft model as tensors with gradients: decoding/distilled_model.h's layers run over a
// whole text at once, and its loss against the target's distribution. It begins as layers of the
// target. Sources: Hinton 2015, "Distilling the Knowledge in a Neural Network", eq. 2; Zhou 2024,
// "DistillSpec", section 4 (texts that the target wrote, forward KL).
//
//   DraftNet net(config, read_model(file), target, at::kFloat);
//   HeadLoss loss = net.loss(example, options);
#pragma once

#include <string>
#include <vector>

#include "core/model_source.h"
#include "experiments/training/train_net.h"

namespace coppice {

class DraftNet : public TrainNet {
 public:
  /// Copies what it begins as from `source`, the target's.
  DraftNet(const HeadConfig& config, const ModelSource& source, const TargetTensors& target,
           at::ScalarType type);

  /// Row r: logits over the draft vocabulary of token example.answer + r, behind the text before
  /// it: (tokens - answer, draft vocabulary).
  at::Tensor forward(const Example& example) const;
  HeadLoss loss(const Example& example, const LoopOptions& options) const override;
  void count_hits(const Example& example, int steps, Hits& hits) const override;

 private:
  struct Angles {
    at::Tensor cosine, sine;  // (positions, head_dim / 2)
  };
  std::vector<Angles> angles(int64_t positions) const;
  at::Tensor attend(const at::Tensor& x, const std::string& layer, const LayerKind& kind,
                    const Angles& turn, int64_t first) const;
  at::Tensor feed_forward(const at::Tensor& x, const std::string& layer) const;
  /// Weight or bias of a layer; undefined where the architecture has none.
  at::Tensor any(const std::string& name) const;

  ModelConfig model_;
  at::Tensor factors_;  // (head_dim / 2) that frequencies are divided by
};

}  // namespace coppice
