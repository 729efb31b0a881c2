// Speculative sampling with a draft model: a smaller model proposes a chain or a tree, level by
// level. Sources: Leviathan 2023, "Fast Inference from Transformers via Speculative Decoding",
// Alg. 1, and Chen 2023, Alg. 2 (chain); Miao 2024, "SpecInfer" (fixed trees, drawn with or without
// replacement); Li 2024, "EAGLE-2" (dynamic trees); Chen 2024, "Sequoia" (optimal trees).
//
//   coppice generate --model big.gguf --draft-model small.gguf --method draft_model
//       --set shape=dynamic --set nodes=20 ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/options.h"
#include "decoding/draft_pace.h"
#include "decoding/draft_runner.h"
#include "decoding/draft_shapes.h"
#include "decoding/registry.h"
#include "decoding/sequoia.h"

namespace coppice {

struct DraftModelOptions {
  std::string shape = "chain";
  int draft_length = 4;
  std::vector<int> branching = {1, 1, 3, 1, 1, 1, 1, 1};
  int nodes = 60;
  int depth = 5;
  int top_k = 10;
  std::vector<double> acceptance = {0.75, 0.1, 0.04, 0.02, 0.01, 0.01, 0.01};
  bool replacement = false;

  template <class Visitor>
  void visit(Visitor& v) {
    v("shape", shape, "of the draft: a chain, a fixed tree, EAGLE-2's dynamic or Sequoia's optimal",
      OneOf{{"chain", "fixed", "dynamic", "sequoia"}});
    v("draft_length", draft_length, "chain: tokens proposed a step", Range{1, 64});
    v("branching", branching, "fixed: children of every node at each depth (SpecInfer's default)",
      Range{1, 64});
    v("nodes", nodes, "dynamic, sequoia: most nodes of the tree", Range{1, 256});
    v("depth", depth, "dynamic, sequoia: most levels of the tree", Range{1, 32});
    v("top_k", top_k, "dynamic: nodes expanded a level, and children of each", Range{1, 64});
    v("acceptance", acceptance, "sequoia: probability that the k-th child is accepted",
      Range{0, 1});
    v("replacement", replacement, "siblings that are drawn may repeat (SpecInfer)");
  }
};

/// Throws Error naming an option that the shape does not read.
void check_shape_options(const OptionMap& given, const DraftModelOptions& options);

class DraftModel : public Drafter {
 public:
  /// Throws Error with the first difference when the vocabularies are not the same.
  DraftModel(const DraftModelOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = most_nodes_}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason) override { runner_->forget(sequence); }
  const DraftRunner& runner() const { return *runner_; }

 private:
  /// A node whose children come next, and its row in the draft model.
  struct Open {
    int node = 0;  // of the shape, or of the dynamic tree
    int row = 0;
    int tree_node = 0;   // static shapes: in the job's tree
    double reach = 1.0;  // P(accepted), the estimate
  };
  /// One job while its tree grows.
  struct Growth {
    DraftJob* job = nullptr;
    DraftRunner::Grown* grown = nullptr;
    int depth = 0;  // levels there are
    int most_depth = 0;
    TreeShape shape;
    DynamicTree dynamic;
    std::vector<Open> open;
    double reach() const;
  };
  bool starts(const DraftJob& job, Growth& growth) const;
  bool goes_on(const Growth& growth) const;
  double grow_shape(Growth& growth);
  double grow_dynamic(Growth& growth);

  DraftModelOptions options_;
  TreeShape shape_;                        // chain, fixed
  std::unique_ptr<SequoiaTrees> sequoia_;  // else null
  bool is_dynamic_;
  int most_nodes_ = 0;
  std::unique_ptr<DraftRunner> runner_;
  DraftPace pace_;
  std::vector<Growth> growths_;
  std::vector<int> nodes_;
  std::vector<int32_t> path_;
  std::vector<RankedToken> ranked_;
};

}  // namespace coppice
