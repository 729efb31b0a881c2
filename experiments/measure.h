// Decodes prompts with each arm of an experiment and turns step records into rows. Nothing here is
// timed: times are the engine's own, and building engines and drafters lies outside them.
//
//   Measurement measurement(config, target, nullptr, *backend, prompts);
//   ArmResult result = measurement.run(0, group, interrupted);   // arm 0 is the baseline
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experiments/bench_config.h"
#include "experiments/interrupt.h"
#include "experiments/prompt_row.h"
#include "experiments/step_trace.h"
#include "experiments/summary.h"
#include "experiments/workload.h"

namespace coppice {

struct ArmResult {
  std::vector<PromptRow> rows;  // one a prompt, in the group's order
  std::string steps;            // lines of steps.jsonl
};

/// A step waits for the row it belongs to, whose request may still fail.
struct Recorded {
  size_t row;
  StepRecord step;
};

class Measurement {
 public:
  /// Makes every arm once, so that options out of range end the run before it begins. Throws Error.
  /// The arguments outlive the object; prompts are encoded.
  Measurement(const BenchConfig& config, const LoadedModel& target, const LoadedModel* draft,
              Backend& backend, std::span<const Prompt> prompts);

  /// The baseline first, then the methods as the config orders them.
  const std::vector<ArmInfo>& arms() const { return arms_; }
  /// Decodes other prompts with every arm and forgets all about them.
  void warm_up(const std::atomic<bool>& interrupted);
  /// What is measured from now on is written to a timeline as well; null: to none.
  void set_trace(StepTrace* trace) { trace_ = trace; }
  /// Decodes a group of prompts together. A prompt that fails gives a row with an error.
  ArmResult run(int arm, std::span<const Prompt* const> group,
                const std::atomic<bool>& interrupted);

 private:
  std::unique_ptr<Decoder> make_decoder(int arm) const;
  ArmResult decode(Decoder& decoder, int arm, std::span<const Prompt* const> group,
                   int max_new_tokens, const std::atomic<bool>& interrupted) const;
  void add_hindsight(PromptRow& row, size_t index, std::span<const Recorded> steps) const;
  Request make_request(const Prompt& prompt, int max_new_tokens) const;

  const BenchConfig& config_;
  const LoadedModel& target_;
  const LoadedModel* draft_;
  Backend& backend_;
  SamplingParams sampling_;
  EngineLimits limits_;
  std::vector<MethodSpec> specs_;  // by arm
  std::vector<ArmInfo> arms_;
  StepTrace* trace_ = nullptr;
  std::vector<std::unique_ptr<Decoder>> carried_;  // by arm; empty when memory is fresh
};

}  // namespace coppice
