// Draft heads as tensors with gradients: the networks of drafters/medusa.h, drafters/hydra.h and
// decoding/feature_layer.h, run over a whole text at once, and their losses. Parameters have the
// names they have in a head's file. Sources: Cai 2024 (Medusa), section 2.2.1; Ankner 2024 (Hydra);
// Li 2024 (EAGLE), section 3.2; Li 2025 (EAGLE-3), section 3.2 (training-time test).
//
//   HeadNet net(config, target, 1, at::kFloat);
//   HeadLoss loss = net.loss(example, options);
//   loss.total.backward();
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "decoding/draft_head.h"
#include "experiments/training/train_options.h"

namespace coppice {

/// What the head reads of its target and does not change.
struct TargetTensors {
  at::Tensor embedding;  // (vocabulary, dim), scaled as the target scales it
  at::Tensor output;     // (draft vocabulary, dim): rows of the output layer
  at::Tensor norm;       // (dim): in front of the output layer
  double norm_eps = 1e-5;
  at::Tensor draft_row;  // (vocabulary): the row that drafts a token, -1: none
};

/// One text. `states` are the taps of the head's config, `last` the state behind the last layer.
struct Example {
  at::Tensor tokens;   // (tokens) of 64-bit integers
  at::Tensor states;   // (taps, tokens, dim)
  at::Tensor last;     // (tokens, dim), before the output norm
  int64_t answer = 0;  // index of the answer's first token
  uint64_t seed = 0;   // of its noise
};

struct HeadLoss {
  at::Tensor total;
  int64_t labels = 0;  // tokens that were learnt, of the nearest guess
};

/// Of guesses at each distance: how often it was reached, all before being right, and was right.
struct Hits {
  std::vector<int64_t> reached, right;
  double tokens_per_step() const;
  void add(const Hits& more);
};

class HeadNet {
 public:
  using Parameter = std::pair<std::string, at::Tensor>;

  /// Random weights by the seed, of that element type; what the target can give is copied from it.
  HeadNet(const HeadConfig& config, const TargetTensors& target, uint64_t seed,
          at::ScalarType type);

  const HeadConfig& config() const { return config_; }
  /// Those that are trained, and those that the file needs as well.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Parameter>& constants() const { return constants_; }
  const at::Tensor& parameter(const std::string& name) const;

  /// Row r of step k: logits over the draft vocabulary of token first_row(k) + r + 2, drafted k
  /// tokens behind the last true state, when the tokens between are the text's: (tokens - 2 -
  /// first_row(k), draft vocabulary).
  std::vector<at::Tensor> forward(const Example& example, int steps) const;
  /// What comes before the answer is not guessed at.
  static int64_t first_row(const Example& example, int step);
  HeadLoss loss(const Example& example, const LoopOptions& options) const;
  /// Greedy guesses against the text.
  void count_hits(const Example& example, int steps, Hits& hits) const;

 private:
  void add_matrix(const std::string& name, int64_t rows, int64_t cols, double gain = 1.0);
  void add(const std::string& name, at::Tensor value);
  at::Tensor blocks(at::Tensor x, int head, int first) const;
  std::vector<at::Tensor> medusa(const Example& example, int steps) const;
  std::vector<at::Tensor> hydra(const Example& example, int steps) const;
  std::vector<at::Tensor> unroll(const Example& example, int steps, double noise,
                                 at::Tensor* features) const;
  at::Tensor normed_last(const Example& example) const;
  at::Tensor embed(const Example& example) const;
  const at::Tensor& weight(const std::string& name) const { return parameter(name); }

  HeadConfig config_;
  TargetTensors target_;
  at::ScalarType type_;
  std::vector<Parameter> parameters_, constants_;
};

}  // namespace coppice
