// Speculative sampling with a draft model: a smaller model proposes a chain or a tree, level by
// level. Sources: Leviathan 2023, "Fast Inference from Transformers via Speculative Decoding",
// Alg. 1, and Chen 2023, Alg. 2; decoding/tree_growth.h has the trees and their papers.
//
//   coppice generate --model big.gguf --draft-model small.gguf --method draft_model
//       --set shape=dynamic --set nodes=20 ...
#pragma once

#include <vector>

#include "decoding/draft_head.h"
#include "decoding/draft_runner.h"
#include "decoding/registry.h"
#include "decoding/tree_growth.h"

namespace coppice {

using DraftModelOptions = TreeOptions;

class DraftModel : public Drafter, private DraftSource {
 public:
  /// Throws Error with the first difference when the vocabularies are not the same.
  DraftModel(const DraftModelOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = growth_.most_nodes()}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override { growth_.grow(jobs, *this); }
  void forget(SeqId sequence, Reason) override { runner_.forget(sequence); }
  const DraftRunner& runner() const { return runner_; }

 private:
  int room(const DraftJob& job) const override;
  int begin(const DraftJob& job) override;
  int add(SeqId sequence, int parent_row, int32_t token) override;
  void run(std::span<const SeqId> sequences) override;
  std::span<const float> logits(SeqId sequence, int row) override;

  TreeGrowth growth_;
  DraftRunner runner_;
  DraftVocabulary vocabulary_;
  std::vector<DraftRunner::Grown*> grown_;  // by SeqId
  std::vector<DraftRunner::Grown*> running_;
};

}  // namespace coppice
