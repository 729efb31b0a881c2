// Jacobi decoding: guesses for the next tokens are verified all at once, and what the target says
// behind each guess is the next step's guess. Source: Santilli 2023, "Accelerating Transformer
// Inference for Translation via Parallel Decoding", Alg. 1 (PJ), without a fixed block: the window
// of `draft_length` guesses slides with the accepted tokens.
//
//   coppice generate --method jacobi ...
#pragma once

#include <cstdint>
#include <vector>

#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct JacobiOptions {
  int draft_length = 4;

  template <class Visitor>
  void visit(Visitor& v) {
    v("draft_length", draft_length, "guesses verified a step", Range{1, 256});
  }
};

class Jacobi : public Drafter {
 public:
  explicit Jacobi(const JacobiOptions& options) : options_(options) {}
  Needs needs() const override { return {.top_k = 1, .most_nodes = options_.draft_length}; }
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  struct Guess {
    int32_t token = 0;
    bool settled = false;  // the target said the same a step before
  };
  struct State {
    std::vector<Guess> guesses;   // for the positions behind node 0
    std::vector<Guess> proposed;  // by own node, from 1 on
    HitHistory hits[2];           // of guesses that were not settled, and of those that were
  };
  State& state_of(SeqId sequence);

  JacobiOptions options_;
  std::vector<State> states_;  // by SeqId
};

}  // namespace coppice
