// Medusa: heads on the target's last hidden state guess the tokens two, three and more ahead, each
// on its own, and their guesses are combined into a tree. Source: Cai 2024, "Medusa: Simple LLM
// Inference Acceleration Framework with Multiple Decoding Heads", section 2.1.1 (heads), 2.1.2
// (the Cartesian product of each head's best guesses) and 2.3.3 (the tree by expected acceptance).
//
//   coppice generate --method medusa --set head=smollm2.medusa.safetensors ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decoding/draft_head.h"
#include "decoding/draft_pace.h"
#include "decoding/draft_shapes.h"
#include "decoding/last_hidden.h"
#include "decoding/registry.h"
#include "decoding/tree_growth.h"

namespace coppice {

struct MedusaOptions {
  std::string head;
  std::string shape = "ranked";
  int nodes = 63;
  int top_k = 10;
  std::vector<int> branching = {4, 2, 2, 1};

  template <class Visitor>
  void visit(Visitor& v) {
    v("head", head,
      "file that `coppice train medusa` wrote, or a published checkpoint; empty: the one shipped");
    v("shape", shape,
      "of the tree: the paths that the heads find likeliest, or the same number of guesses a head "
      "everywhere",
      OneOf{{"ranked", "static"}});
    v("nodes", nodes, "ranked: most nodes of the tree", Range{1, 256});
    v("top_k", top_k, "ranked: guesses of each head", Range{1, 64});
    v("branching", branching, "static: guesses of each head", Range{1, 64});
  }
};

/// Throws Error naming an option that the shape does not read.
void check_shape_options(const OptionMap& given, const MedusaOptions& options);

class Medusa : public Drafter {
 public:
  /// Throws Error when the head is missing, damaged or another target's.
  Medusa(const MedusaOptions& options, const MethodParts& parts);
  Needs needs() const override;
  void observe(std::span<const Observation> observations) override {
    hidden_.observe(observations);
  }
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason) override { hidden_.forget(sequence); }

 private:
  struct Block {
    std::unique_ptr<Weight> weight;  // (dim, dim)
    std::vector<float> bias;
  };
  struct Head {
    std::vector<Block> blocks;
    std::unique_ptr<Weight> output;  // null: the heads share one
  };
  void run(int sequences, int heads);
  void add_output(const Weight& weight, int head, int rows, int sequences);
  void grow_ranked(DraftJob& job);
  void grow_static(DraftJob& job);

  MedusaOptions options_;
  const Model* target_;
  Backend* backend_;
  std::vector<int> taps_;
  std::vector<Head> heads_;
  std::unique_ptr<Weight> shared_output_;  // null: the target's, or each head's own
  std::unique_ptr<DraftVocabulary> vocabulary_;
  TreeShape shape_;
  int most_nodes_ = 0;
  LastHidden hidden_;
  DraftPace pace_;
  Buffer input_;         // (sequences, dim)
  Buffer state_, next_;  // (heads, sequences, dim)
  Buffer logits_;        // (heads, sequences, draft vocabulary)
  std::vector<Op> ops_;
  std::vector<DraftJob*> running_;
  std::vector<std::vector<RankedToken>> ranked_;  // by head, of the job at hand
};

}  // namespace coppice
