// The one loop that every method runs in. A step picks sequences, lets the drafter grow trees,
// verifies all rows in one forward, judges, cuts at a stop, commits, and lets the drafter learn.
// The baseline is the same loop with empty trees.
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
#include <span>
#include <string>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"
#include "core/sampling.h"
#include "core/step_record.h"
#include "core/tokenizer.h"
#include "decoding/acceptance.h"
#include "decoding/backend_judge.h"
#include "decoding/budget.h"
#include "decoding/drafter.h"
#include "decoding/packed_batch.h"
#include "decoding/stop.h"

namespace coppice {

using RequestId = uint64_t;

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
  std::string error;        // when failed
  int steps = 0;            // target passes in decoding, the prefill's not counted
  int prefill_emitted = 0;  // tokens the prefill's last pass gave: 1, or 0 when it failed
  double ttft_ms = 0;       // from the request's first pass to its first token
  double decode_ms = 0;     // from its first token to its last
  std::vector<RawLogProbabilities> logprobs;  // one an id, when asked for
};

struct EngineLimits {
  int sequences = 1;     // most sequences in a step
  int context = 0;       // positions a sequence may have; 0: the model's
  int pages = 0;         // of the cache; 0: every sequence can reach `context`
  int chunk_rows = 256;  // most trunk rows in a step, over all sequences
  int budget = 0;        // most nodes a sequence and step; 0: no drafts
  bool record_trees = false;
};

/// What an engine decodes with. The parts must outlive it. `tokenizer` may be null (no text, no
/// stop strings); its size bounds the ids that are drawn.
struct EngineParts {
  const Model* target = nullptr;
  Backend* backend = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const AcceptanceRule* rule = nullptr;
  Drafter* drafter = nullptr;    // null: the baseline
  AutoBudget* budget = nullptr;  // null: every node that the drafter grows is verified
};

/// A step of one sequence as it was judged; valid during the call alone.
struct JudgedStep {
  RequestId id = 0;
  int first_position = 0;  // of the first row
  int trunk = 0;           // rows before node 0's, and that one
  const TokenTree* tree = nullptr;
  TargetRows* target = nullptr;  // may be asked for more
  const Verdict* verdict = nullptr;
  std::span<const Question> asked;  // by the rule, in order
};

struct Sequence;  // decoding/sequence.h: a request while the engine works on it

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
  /// Moves a finished request's answer out and forgets the request.
  Answer take(RequestId id);
  int running() const;
  KVCache& cache() { return *cache_; }
  int context() const { return context_; }
  /// Called once a sequence and step; empty: nothing is recorded.
  std::function<void(const StepRecord&)> on_step;
  /// Called where a step was judged, before its tokens are delivered; empty: nothing is noted.
  std::function<void(const JudgedStep&)> on_judged;

 private:
  Sequence& find(RequestId id) const;
  void admit();
  void plan();
  bool reserve(Sequence& sequence, int nodes);
  void draft();
  void open_budget();
  void choose();
  void pack();
  void ask_backend(ForwardBatch& batch);
  void judge(const ForwardOutput& output);
  void append(Sequence& sequence, const ForwardOutput& output, int index);
  void commit_and_observe(const ForwardOutput& output);
  void close_budget(double draft_ms, double target_ms);
  void report(const StepRecord& times);
  void end(Sequence& sequence, Finish finish);
  void release(Sequence& sequence, Reason reason);

  EngineParts parts_;
  EngineLimits limits_;
  Needs needs_;
  int context_ = 0;
  int vocabulary_ = 0;
  int most_nodes_ = 0;
  std::unique_ptr<KVCache> cache_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // by arrival, the oldest first
  std::vector<Sequence*> in_step_;
  std::vector<DraftJob> jobs_;
  std::vector<BudgetedTree> budgeted_;  // by in_step_; empty: no budget weighs this step
  std::vector<Observation> observations_;
  BackendJudge backend_judge_;
  std::vector<const float*> node_logits_;
  std::vector<Question> asked_;
  PackedBatch packed_;
  RequestId next_id_ = 1;
  std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
};

}  // namespace coppice
