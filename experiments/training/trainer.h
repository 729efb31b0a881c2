// The training loop: texts in, a head out. A run stopped anywhere goes on from its last checkpoint
// to the same weights, bit for bit, as one that was never stopped.
//
//   Trainer trainer(config, make_net(head, source, data.draft_ids, 1), data, folder);
//   trainer.resume();
//   trainer.run(0);
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model_source.h"
#include "experiments/training/adamw.h"
#include "experiments/training/answers.h"
#include "experiments/training/hidden_states.h"
#include "experiments/training/train_net.h"

namespace coppice {

/// The shape of a head of that kind for a target. Throws Error when the target has too few layers.
HeadConfig head_config(std::string_view kind, const TrainConfig& config, const Model& target);
/// `draft_ids` as frequent_tokens() gives them.
TargetTensors read_target(const ModelSource& source, const std::vector<int32_t>& draft_ids);

/// The network of that kind as it begins, in single precision.
std::unique_ptr<TrainNet> make_net(const HeadConfig& head, const ModelSource& source,
                                   const std::vector<int32_t>& draft_ids, uint64_t seed);

struct TrainData {
  Answers answers;
  std::vector<int32_t> draft_ids;
  HiddenStates* train = nullptr;       // the config's taps, then the last layer's state if not
  HiddenStates* validation = nullptr;  // among them
};
/// What HiddenStates must hold for a head of that config.
std::vector<int> stored_taps(const HeadConfig& config);

class Trainer {
 public:
  /// `data` outlives the object. The folder exists. `threads` texts are learnt at a time.
  Trainer(const TrainConfig& config, std::unique_ptr<TrainNet> net, const TrainData& data,
          std::filesystem::path folder, int threads = 1);

  /// Goes on from the checkpoint in the folder; false: there is none. Throws Error when it was made
  /// for another head or data.
  bool resume();
  /// Trains to the config's last step, or for that many minutes or steps (0: no bound), writing
  /// checkpoints, log.jsonl and the head as it is. Throws Failure naming the step where the loss is
  /// no number.
  void run(double minutes, int steps = 0);
  /// Greedy guesses on the validation texts.
  Hits evaluate();
  int steps_done() const { return step_; }
  TrainNet& net() { return *net_; }
  std::filesystem::path head_path() const { return folder_ / (head_.kind + ".safetensors"); }

 private:
  Example example(const TrainText& text, HiddenStates& states, size_t index);
  double train_step();
  size_t text_of(int64_t position);
  void write_checkpoint() const;
  void write_head(const Hits& hits) const;
  void log(const std::string& line) const;
  std::string identity() const;
  double rate() const;

  HeadConfig head_;
  TrainConfig config_;
  const TrainData* data_;
  std::filesystem::path folder_;
  std::unique_ptr<TrainNet> net_;
  AdamW optimiser_;
  int threads_;
  int step_ = 0;
  int64_t labels_ = 0;
  int64_t epoch_ = -1;
  std::vector<size_t> order_;  // of the epoch
  std::vector<float> buffer_;
};

}  // namespace coppice
