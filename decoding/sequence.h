// A request while the engine works on it: its tokens, its sampler and stop rules, its place in the
// cache, and what the step at hand does with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv_cache.h"
#include "core/sampling.h"
#include "core/step_record.h"
#include "core/token_tree.h"
#include "decoding/acceptance.h"
#include "decoding/engine.h"
#include "decoding/stop.h"

namespace coppice {

struct Sequence {
  using Clock = std::chrono::steady_clock;

  Sequence(RequestId number, Request asked, const Tokenizer* tokenizer, int vocabulary);

  bool finished() const { return answer.finish != Finish::running; }
  bool on_cache() const { return kv >= 0; }
  /// What this step did; rows, batch and times are the engine's to fill.
  StepRecord record(bool with_tree) const;

  RequestId id;
  Request request;
  Answer answer;
  Sampler sampler;
  StopWatch watch;
  std::vector<int32_t> tokens;  // prompt and emitted; all but the last are committed in decoding
  SeqId kv = -1;                // -1: waiting, or preempted
  bool first_pass_done = false;
  Clock::time_point first_pass, first_token;

  // This step.
  std::optional<KVCache::Tail> tail;
  TokenTree tree;
  std::vector<ProposedNode> proposed;  // the tree before the budget cut it
  Verdict verdict;
  std::vector<int> kept;  // rows to commit
  int first_position = 0;
  int trunk = 0;         // certain tokens computed
  bool decides = false;  // the trunk reaches the last token, so there is something to judge
  int path_kept = 0;     // accepted nodes that were kept
  int emitted = 0;
};

}  // namespace coppice
