// Speculative sampling with a draft model: a smaller model proposes a chain, token by token.
// Sources: Leviathan 2023, "Fast Inference from Transformers via Speculative Decoding", Alg. 1, and
// Chen 2023, "Accelerating Large Language Model Decoding with Speculative Sampling", Alg. 2.
//
//   coppice generate --model big.gguf --draft-model small.gguf --method draft_model ...
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv_cache.h"
#include "decoding/packed_batch.h"
#include "decoding/registry.h"

namespace coppice {

struct DraftModelOptions {
  int draft_length = 4;

  template <class Visitor>
  void visit(Visitor& v) {
    v("draft_length", draft_length, "tokens proposed a step", Range{1, 64});
  }
};

class DraftModel : public Drafter {
 public:
  /// Throws Error with the first difference when the vocabularies are not the same.
  DraftModel(const DraftModelOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = options_.draft_length}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  /// The draft model's own cache of a sequence and the tokens it holds.
  struct State {
    SeqId kv = -1;
    std::vector<int32_t> fed;
  };
  /// One job while its chain grows: `pending` are the tokens to feed next.
  struct Chain {
    DraftJob* job = nullptr;
    State* state = nullptr;
    int node = 0;
    std::vector<int32_t> pending;
  };
  State& state_of(SeqId sequence);
  ForwardOutput feed(std::span<Chain> chains, bool wants_logits);

  DraftModelOptions options_;
  const Model* model_;
  int context_;
  KVCache cache_;
  Workspace workspace_;
  PackedBatch packed_;
  std::vector<State> states_;  // by SeqId
  std::vector<Chain> chains_;
};

}  // namespace coppice
