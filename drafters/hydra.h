// Hydra: Medusa's heads made sequential. Each head reads the target's last hidden state and the
// embeddings of the tokens drafted so far, so that a guess fits the path above it. Source: Ankner
// 2024, "Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding", section 3.
//
//   coppice generate --method hydra --set head=smollm2.hydra.safetensors ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decoding/draft_head.h"
#include "decoding/draft_rows.h"
#include "decoding/last_hidden.h"
#include "decoding/registry.h"
#include "decoding/tree_growth.h"

namespace coppice {

struct HydraOptions {
  std::string head;
  TreeOptions tree{.shape = "dynamic", .nodes = 24, .depth = 4, .top_k = 4};

  template <class Visitor>
  void visit(Visitor& v) {
    v("head", head, "file that `coppice train hydra` wrote; empty: the one shipped for the target");
    tree.visit(v);
  }
};

inline void check_shape_options(const OptionMap& given, const HydraOptions& options) {
  check_shape_options(given, options.tree);
}

class Hydra : public Drafter, private DraftSource {
 public:
  /// Throws Error when the head is missing, damaged or another target's.
  Hydra(const HydraOptions& options, const MethodParts& parts);
  Needs needs() const override;
  void observe(std::span<const Observation> observations) override {
    hidden_.observe(observations);
  }
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason) override { hidden_.forget(sequence); }

 private:
  struct Head {
    std::unique_ptr<Weight> joined;    // (dim, (depth + 2) dim): hidden state, then embeddings
    std::unique_ptr<Weight> residual;  // the same shape
    std::vector<float> bias;
    std::vector<std::unique_ptr<Weight>> blocks;  // (dim, dim): further residual blocks
    std::vector<std::vector<float>> block_bias;
  };
  /// A sequence's tree while it grows.
  struct Growing {
    DraftRows rows;
    std::vector<int> embedding;  // of each computed row, in embeddings_
    std::vector<float> hidden;   // (dim), as the output layer reads it
    int first_logits = 0;        // of the last run's rows
    int last_run = 0;            // its first row
  };
  int room(const DraftJob& job) const override;
  int begin(const DraftJob& job) override;
  int add(SeqId sequence, int parent_row, int32_t token) override;
  void run(std::span<const SeqId> sequences) override;
  std::span<const float> logits(SeqId sequence, int row) override;
  void join_inputs(const Growing& growing, int row, float* out) const;

  TreeGrowth growth_;
  const Model* target_;
  Backend* backend_;
  std::vector<int> taps_;
  std::vector<Head> heads_;
  std::unique_ptr<Weight> output_;  // null: the target's
  std::unique_ptr<DraftVocabulary> vocabulary_;
  LastHidden hidden_;
  std::vector<Growing> growing_;  // by SeqId
  int depth_ = 0;                 // of the next run's rows
  int embedded_ = 0;              // rows of embeddings_ in use
  Buffer embeddings_;             // (all rows of a proposal, dim)
  Buffer joined_;                 // (rows, (heads + 1) dim)
  Buffer state_, next_;           // (rows, dim)
  Buffer logits_;                 // (rows, draft vocabulary)
  std::vector<int32_t> token_;
  std::vector<Op> ops_;
};

}  // namespace coppice
