// Self-speculation: the target drafts for itself with some of its layers left out, and verifies
// with all of them. Sources: Zhang 2023, "Draft & Verify: Lossless Large Language Model
// Acceleration via Self-Speculative Decoding", Alg. 1 and section 3.3 (a chosen subset; drafting
// stops at low confidence; here whole layers are skipped, there attention and MLP one by one), and
// Elhoushi 2024, "LayerSkip" (early exit: the first layers alone; 6 drafts after layer 8).
//
//   coppice tune layer_skip --model smollm2 --out skip.toml
//   coppice generate --model smollm2 --method skip.toml ...
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decoding/draft_pace.h"
#include "decoding/registry.h"

namespace coppice {

struct LayerSkipOptions {
  std::vector<int> skip;
  int exit = 0;
  int draft_length = 8;
  double threshold = 0.8;
  bool adapt = true;

  template <class Visitor>
  void visit(Visitor& v) {
    v("skip", skip, "layers left out, from 0; empty, and no exit: every second one", Range{0, 1e4});
    v("exit", exit, "draft with the first layers alone, this many (LayerSkip); 0: by skip",
      Range{0, 1e4});
    v("draft_length", draft_length, "most tokens proposed a step", Range{1, 64});
    v("threshold", threshold, "stop behind a token that the draft is less sure of; 0: never",
      Range{0, 1});
    v("adapt", adapt, "move the threshold by what is accepted (Draft & Verify, eq. 5)");
  }
};

class LayerSkip : public Drafter {
 public:
  /// Throws Error when the layers do not fit the model, or none or all of them are left.
  LayerSkip(const LayerSkipOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = options_.draft_length}; }
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;
  std::span<const int> layers() const { return layers_; }
  /// Below which a chain of the sequence stops now.
  double threshold(SeqId sequence) { return confidence_of(sequence).threshold; }

 private:
  /// Draft & Verify's threshold of one sequence.
  struct Confidence {
    double threshold = 0.0;
    double matched = 0.5;  // acceptance of late
  };
  struct Chain {
    DraftJob* job = nullptr;
    int node = 0;
    double reach = 1.0;
  };
  Confidence& confidence_of(SeqId sequence);
  ForwardOutput forward();

  LayerSkipOptions options_;
  const Model* target_;
  std::vector<int> layers_;  // that are run
  Workspace workspace_;
  DraftPace pace_;
  std::vector<Confidence> confidence_;  // by SeqId
  std::vector<Chain> chains_;
  std::vector<int32_t> token_, parent_, wanted_, chain_parents_;
  std::vector<SequenceRows> rows_;
};

}  // namespace coppice
