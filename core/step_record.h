// What one step did for one sequence: the single source of metrics, reports, the explainer and
// replay. Filled only when someone listens.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice {

struct StepRecord {
  uint64_t id = 0;       // the engine's number of the request
  uint32_t request = 0;  // the caller's own (SamplingParams::request)
  int step = 0;          // 0-based, of this request
  int position = 0;      // of node 0: tokens known before the step, less one
  int trunk = 0;         // certain tokens computed: 1 in steady decoding, more in prefill
  bool prefill = false;  // the first pass over these tokens; its time is TTFT's, not decoding's
  int rows = 0;          // rows of the sequence in the forward: trunk and tree, repeats shared
  int proposed = 0;      // verify nodes that the drafter grew
  int drafted = 0;       // verify nodes that were kept and judged
  int probes = 0;
  int reached = 0;   // draft positions judged: accepted ones, and the one that failed if any
  int accepted = 0;  // nodes on the path as the rule walked it
  int emitted = 0;   // tokens delivered: a stop may cut the path
  int batch = 1;     // sequences in the forward; the times below are the whole step's
  double draft_ms = 0, target_ms = 0, judge_ms = 0, other_ms = 0;
  double start_ms = 0;   // when the step began, since the engine was made
  double plan_ms = 0;    // of other_ms: what came before drafting
  double commit_ms = 0;  // of other_ms: what came behind judging

  // What the budget `auto` expected of the whole step; 0 under a fixed budget.
  double expected_tokens = 0;
  double expected_ms = 0;                // of the target's pass
  double plain_ms = 0;                   // of the pass without drafts, one token a sequence
  std::vector<int32_t> proposed_tokens;  // node 0 first, before the cut
  std::vector<int32_t> proposed_parents;

  // Filled at trace level `trees` alone.
  std::vector<int32_t> tree_tokens;  // node 0 first
  std::vector<int32_t> tree_parents;
  std::vector<int32_t> tree_path;  // accepted nodes
  std::vector<int32_t> tokens;     // emitted
};

}  // namespace coppice
