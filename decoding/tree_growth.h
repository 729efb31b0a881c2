// Grows token trees level by level from whatever gives a distribution behind a node: a draft model,
// or a head on the target's hidden states. Sources: Leviathan 2023, Alg. 1, and Chen 2023, Alg. 2
// (chain); Miao 2024, "SpecInfer" (fixed trees, drawn with or without replacement); Li 2024,
// "EAGLE-2" (dynamic trees); Chen 2024, "Sequoia" (optimal trees).
//
//   TreeGrowth growth(options, "draft_model");
//   growth.grow(jobs, source);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "decoding/draft_pace.h"
#include "decoding/draft_shapes.h"
#include "decoding/sequoia.h"

namespace coppice {

struct TreeOptions {
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

/// An option that only some shapes read.
struct ShapeOption {
  std::string_view name, shapes;
};
/// Throws Error naming an option that was given and that the shape does not read.
void check_shape_options(const OptionMap& given, std::string_view shape,
                         std::span<const ShapeOption> options);
void check_shape_options(const OptionMap& given, const TreeOptions& options);

/// Gives the logits behind tokens that it was handed in rows, node 0's row first.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  /// Levels it could draft for the job now; 0: none. Modifies nothing.
  virtual int room(const DraftJob& job) const = 0;
  /// Catches up with the job's tokens. Returns node 0's row, which the next run() computes.
  virtual int begin(const DraftJob& job) = 0;
  /// Row of `token` under a row; the one that is there when they are the same tokens. -1: no room.
  virtual int add(SeqId sequence, int parent_row, int32_t token) = 0;
  /// Computes what was added since the last run, for all sequences at once.
  virtual void run(std::span<const SeqId> sequences) = 0;
  /// Behind a row of the last run, over the target's vocabulary; valid until the next call.
  virtual std::span<const float> logits(SeqId sequence, int row) = 0;
};

class TreeGrowth {
 public:
  /// Throws Error naming the method and the option when they describe no tree.
  TreeGrowth(const TreeOptions& options, std::string_view method);

  int most_nodes() const { return most_nodes_; }  // in a tree
  int most_rows() const { return most_rows_; }    // added to the source behind node 0
  int widest() const { return widest_; }          // of these in one run
  int most_levels() const;
  /// Modifies the jobs' trees and the source.
  void grow(std::span<DraftJob> jobs, DraftSource& source);

 private:
  /// A node whose children come next, and its row in the source.
  struct Open {
    int node = 0;  // of the shape, or of the dynamic tree
    int row = 0;
    int tree_node = 0;   // static shapes: in the job's tree
    double reach = 1.0;  // P(accepted), the estimate
  };
  /// One job while its tree grows.
  struct Growth {
    DraftJob* job = nullptr;
    int depth = 0;  // levels there are
    int most_depth = 0;
    TreeShape shape;
    DynamicTree dynamic;
    std::vector<Open> open;
    double reach() const;
  };
  bool starts(const DraftJob& job, int room, Growth& growth) const;
  bool goes_on(const Growth& growth) const;
  double grow_shape(Growth& growth, DraftSource& source);
  double grow_dynamic(Growth& growth, DraftSource& source);

  TreeOptions options_;
  TreeShape shape_;                        // chain, fixed
  std::unique_ptr<SequoiaTrees> sequoia_;  // else null
  bool is_dynamic_;
  int most_nodes_ = 0, most_rows_ = 0, widest_ = 0;
  DraftPace pace_;
  std::vector<Growth> growths_;
  std::vector<SeqId> running_;
  std::vector<int> nodes_;
  std::vector<int32_t> path_;
  std::vector<RankedToken> ranked_;
};

}  // namespace coppice
