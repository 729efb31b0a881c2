// One arm's answer to one prompt: what prompts.jsonl holds, a line each, and every figure of a
// report is computed from. Filled from step records, the only source of counts and times.
//
//   PromptRow row;
//   for (const StepRecord& step : steps) add_step(row, step);
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/step_record.h"

namespace coppice {

struct PhaseTimes {
  double draft = 0, target = 0, judge = 0, other = 0;  // ms
};

/// Counts and times are of decoding: prefill passes count for `ttft_ms` alone.
struct PromptRow {
  std::string prompt, category, arm;
  std::string error;   // not empty: the answer failed, and the row counts for nothing
  std::string finish;  // "stop", "length", "context"
  int prompt_tokens = 0;
  std::vector<int32_t> ids;         // emitted
  std::vector<int32_t> prompt_ids;  // in the baseline's rows alone: the other arms' are the same
  double ttft_ms = 0;               // first pass to first token
  double latency_ms = 0;            // first token to last
  double decode_ms = 0;             // decode steps; a step's time is shared by the sequences in it
  int decode_tokens = 0;            // emitted by decode steps
  int steps = 0;                    // target passes
  int steps_without_draft = 0;
  int64_t rows = 0;  // rows of the target's passes
  int64_t drafted = 0, probes = 0;
  int64_t accepted = 0;   // by the rule
  int64_t discarded = 0;  // accepted, then behind a stop: never emitted
  /// At draft position i (from 0): steps whose walk came to judge it, and those that accepted it.
  std::vector<int64_t> reached_at, accepted_at;
  /// That the machine's packages used for the answer, prompt included; shared by tokens where
  /// several were decoded together. Empty: the machine reports none.
  std::optional<double> joules;
  PhaseTimes phase;  // sums; like decode_ms, shared by the sequences of a step

  // Under the budget `auto` alone.
  int64_t proposed = 0;          // verify nodes before the cut
  double expected_ms = 0;        // what its choices were to cost, drafting included
  double expected_plain_ms = 0;  // what the tokens expected of them would cost without drafts
  std::vector<int> matches;      // a step each: proposed nodes in a row that the answer holds
  std::vector<double> pass_ms;   // entry n: a pass over n + 1 rows at the answer's middle
};

/// Adds one to the first `count` places: a step that reached, or accepted, so many positions.
void count_first(std::vector<int64_t>& at, int count);
void add_step(PromptRow& row, const StepRecord& step);
/// How far down a step's proposed tree the answer goes: what hindsight would have kept.
/// `row.ids` is whole.
int match_length(const PromptRow& row, const StepRecord& step);

nlohmann::ordered_json row_to_json(const PromptRow& row);
/// Throws Error beginning with `place` when a field is missing or of another type.
PromptRow row_from_json(const nlohmann::json& json, std::string_view place);
/// A line of steps.jsonl.
nlohmann::ordered_json step_to_json(const StepRecord& step, const PromptRow& row);
/// A step as steps.jsonl holds it: whose it was, and its counts and times.
struct RecordedStep {
  std::string prompt, arm;
  StepRecord record;
};
/// Throws Error beginning with `place`. Trees are left out.
RecordedStep step_from_json(const nlohmann::json& json, std::string_view place);

}  // namespace coppice
