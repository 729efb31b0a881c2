// Steps of a model, timed by context and rows, whole and by kind of operation; and what a step must
// read and compute at least.
//
//   OpListener backend(make_backend({.name = "cpu"}));
//   LoadedModel loaded = load_model(path, backend);
//   StepTimer timer(*loaded.model, backend, 4096, 64);
//   timer.set_context(512);
//   double seconds = timer.step(8);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/model.h"

namespace coppice {

/// A backend that hands everything on, and keeps the last list of ops when asked to.
class OpListener final : public Backend {
 public:
  explicit OpListener(std::unique_ptr<Backend> backend)
      : Backend(backend->ranks()), backend_(std::move(backend)) {}

  std::string describe() const override { return backend_->describe(); }
  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share share) override {
    return backend_->pack(parts, stacking, share);
  }
  Buffer allocate(size_t bytes) override { return backend_->allocate(bytes); }
  void run(std::span<const Op> ops) override {
    if (listening) heard.assign(ops.begin(), ops.end());
    backend_->run(ops);
  }

  bool listening = false;
  std::vector<Op> heard;

 private:
  std::unique_ptr<Backend> backend_;
};

/// Seconds of a step, and of its operations of a kind run one after the other without the rest.
struct StepParts {
  double step = 0.0;
  double products = 0.0;   // matrix products, with the quantisation of their inputs
  double norms = 0.0;      // what the norms before them add
  double attention = 0.0;  // with rotary embedding and the writing of K and V
};

/// What a step cannot do without.
struct StepWork {
  double bytes = 0.0;               // weights and the sequence's K and V, read once
  double product_operations = 0.0;  // two a multiply-add
  double attention_operations = 0.0;
};

/// One sequence, and steps at its end that are computed and forgotten again. A step is a chain of
/// rows whose logits are all wanted.
class StepTimer {
 public:
  /// `model` was packed by `backend`; both outlive the object. Throws Error when the model's
  /// context is too short for both numbers together.
  StepTimer(const Model& model, OpListener& backend, int most_context, int most_rows);

  /// Tokens in the cache before a step. Only the first of them are computed: the rest are copies of
  /// their K and V, which take as long to read.
  void set_context(int context);
  /// Seconds of one step; its logits stay where the next step writes its own.
  double step(int rows);
  /// Medians of so many repeats, in turn, after one that warms up.
  StepParts parts(int rows, int repeats);
  StepWork work(int rows);

 private:
  void forward(int rows);
  void copy_kv(int from_count, int to);
  void listen(int rows);
  double run(const std::vector<Op>& ops);

  const Model& model_;
  OpListener& backend_;
  Workspace workspace_;
  KVCache cache_;
  SeqId sequence_;
  Buffer normed_;  // stands in for normed inputs: (most_rows, dim)
  std::vector<int32_t> token_, parent_, wanted_;
};

}  // namespace coppice
