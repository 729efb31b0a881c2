// The one loop that every method runs in. A step picks sequences, lets the drafter grow trees,
// verifies all rows in one forward, judges, cuts at a stop, commits, and lets the drafter learn. The
// baseline is the same loop with empty trees.
//
//   Engine engine(target, rule, &drafter, limits);
//   RequestId id = engine.submit({.prompt = ids});
//   while (engine.step()) {}
//   const Answer& answer = engine.answer(id);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"
#include "core/sampling.h"
#include "core/step_record.h"
#include "core/tokenizer.h"
#include "decoding/acceptance.h"
#include "decoding/drafter.h"
#include "decoding/packed_batch.h"
#include "decoding/stop.h"

namespace coppice {

using RequestId = uint64_t;

struct TokenLogProbability {
  int32_t token = 0;
  float log_probability = 0.0f;                       // of the model's own logits, before any warp
  std::vector<std::pair<int32_t, float>> most_likely;  // alternatives, most likely first
};

struct Request {
  std::vector<int32_t> prompt;  // not empty, shorter than the context
  SamplingParams sampling;
  StopRules stop;
  bool ignore_eos = false;  // stop.tokens are never drawn, and so never end the answer
  int logprobs = -1;        // alternatives listed a token; -1: no log-probabilities
  std::function<void(std::string_view text)> on_text;  // may be empty
};

struct Answer {
  std::vector<int32_t> ids;  // emitted, a stop token included
  std::string text;          // without it, and without a stop string
  Finish finish = Finish::running;
  std::string error;         // when failed
  int steps = 0;             // target passes in decoding, the prefill's not counted
  int prefill_emitted = 0;   // tokens the prefill's last pass gave: 1, or 0 when it failed
  double ttft_ms = 0;        // from the request's first pass to its first token
  double decode_ms = 0;      // from its first token to its last
  std::vector<TokenLogProbability> logprobs;
};

struct EngineLimits {
  int sequences = 1;       // most sequences in a step
  int context = 0;         // positions a sequence may have; 0: the model's
  int pages = 0;           // of the cache; 0: every sequence can reach `context`
  int chunk_rows = 256;    // most trunk rows in a step, over all sequences
  int budget = 0;          // most nodes a sequence and step; 0: no drafts
  bool record_trees = false;
};

/// What an engine decodes with. The parts must outlive it. `tokenizer` may be null (no text, no stop
/// strings); its size bounds the ids that are drawn.
struct EngineParts {
  const Model* target = nullptr;
  Backend* backend = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const AcceptanceRule* rule = nullptr;
  Drafter* drafter = nullptr;  // null: the baseline
};

class Engine {
 public:
  Engine(const EngineParts& parts, const EngineLimits& limits);
  ~Engine();

  /// Queues a request. Throws Error when it can never run: an empty prompt, one that leaves no room
  /// in the context or in the cache, ids or sampling parameters out of range.
  RequestId submit(Request request);
  /// One pass. False when no request is left.
  bool step();
  /// Ends a request at once; its pages are free on return.
  void cancel(RequestId id);
  /// Takes a running sequence off the cache; it resumes by itself with the same text.
  void preempt(RequestId id);

  const Answer& answer(RequestId id) const;
  int running() const;
  KVCache& cache() { return *cache_; }
  int context() const { return context_; }
  /// Called once a sequence and step; empty: nothing is recorded.
  std::function<void(const StepRecord&)> on_step;

 private:
  struct Sequence;
  using Clock = std::chrono::steady_clock;

  Sequence& find(RequestId id) const;
  void admit();
  bool make_room(const Sequence& for_whom, int rows);
  void plan();
  bool reserve(Sequence& sequence, int budget);
  void draft();
  void judge(const ForwardOutput& output);
  void judge_one(Sequence& sequence, const ForwardOutput& output);
  void append(Sequence& sequence, const Verdict& verdict, const ForwardOutput& output);
  void commit(Sequence& sequence);
  void observe(const ForwardOutput& output);
  void record(double draft_ms, double target_ms, double judge_ms, double other_ms);
  void retire();
  void fail(Sequence& sequence, std::string reason);
  void release(Sequence& sequence, Reason reason);

  EngineParts parts_;
  EngineLimits limits_;
  Needs needs_;
  int context_ = 0;
  std::unique_ptr<KVCache> cache_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // every request not yet dropped, by arrival
  std::vector<Sequence*> step_;                       // those in this step
  std::vector<DraftJob> jobs_;
  std::vector<Observation> observations_;
  PackedBatch packed_;
  RequestId next_id_ = 1;
};

}  // namespace coppice
