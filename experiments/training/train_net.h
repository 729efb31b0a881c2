// What the training loop needs of a network, and what it feeds it: whole texts with the target's
// hidden states. Parameters have the names they have in the finished file.
//
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

class TrainNet {
 public:
  using Parameter = std::pair<std::string, at::Tensor>;

  virtual ~TrainNet() = default;
  // Several threads may ask at once.
  /// Of the tokens of the answer.
  virtual HeadLoss loss(const Example& example, const LoopOptions& options) const = 0;
  /// Greedy guesses against the text, up to `steps` tokens ahead.
  virtual void count_hits(const Example& example, int steps, Hits& hits) const = 0;

  const HeadConfig& config() const { return config_; }
  at::Device device() const { return device_; }
  /// Before anything refers to the parameters. Examples are then expected there.
  void move_to(at::Device device);
  /// Those that are trained, and those that the file needs as well.
  std::vector<Parameter>& parameters() { return parameters_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Parameter>& constants() const { return constants_; }
  const at::Tensor& parameter(const std::string& name) const;

 protected:
  TrainNet(const HeadConfig& config, const TargetTensors& target, at::ScalarType type);
  void add(const std::string& name, const at::Tensor& value);
  void add_constant(const std::string& name, const at::Tensor& value);
  const at::Tensor& weight(const std::string& name) const { return parameter(name); }
  at::Tensor normed_last(const Example& example) const;
  at::Tensor embed(const Example& example) const;

  HeadConfig config_;
  TargetTensors target_;
  at::ScalarType type_;
  at::Device device_ = at::kCPU;

 private:
  std::vector<Parameter> parameters_, constants_;
};

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
/// Pairs of values turned by their position; x: (heads, rows, head_dim), the angles' cosines and
/// sines (rows, head_dim / 2).
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine,
                  RotaryStyle style = RotaryStyle::half_split);
/// Rows `ids` of a matrix, all where there are none, as floats.
at::Tensor read_rows(const TensorView& view, const std::vector<int32_t>& ids = {});

}  // namespace coppice
