// The row budget "auto": of the nodes that drafters propose, keeps those whose expected tokens are
// worth their time. With lambda = tokens per second now, a node earns its path's probability and
// costs lambda times what its row adds to the pass; all sequences of a step are weighed together.
// The baseline is the answer that keeps no node, so drafting stops where drafting loses; and a
// drafter whose own time is not worth it is left alone for a while.
//
//   AutoBudget budget(costs);
//   budget.begin(sequences);            // unless it rests(), drafters propose, asking price()
//   budget.choose(sequences);           // cuts the trees
//   budget.learn(proposed, emitted);    // once a sequence
//   budget.end(emitted, draft_seconds, target_seconds);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/token_tree.h"
#include "decoding/calibration.h"
#include "decoding/cost_curve.h"
#include "decoding/draft_balance.h"
#include "decoding/draft_price.h"

namespace coppice {

/// A sequence's part in a step of decoding: node 0's row and the tree under it.
struct BudgetedTree {
  TokenTree* tree = nullptr;
  int context = 0;  // tokens it has
};

/// A node as it was proposed, before the cut.
struct ProposedNode {
  int parent = 0;
  int32_t token = 0;
  float score = 0;
  uint8_t source = 0;
  NodeRole role = NodeRole::verify;
};

class AutoBudget {
 public:
  /// A row must earn so much more than its time: estimates err both ways, and of those that err
  /// upwards more are acted upon.
  static constexpr double kCaution = 1.1;

  /// `costs` outlives the object, and learns from its steps.
  explicit AutoBudget(CostCurve& costs) : costs_(&costs) {}

  /// Opens a step: who takes part. Modifies the price.
  void begin(std::span<const BudgetedTree> step);
  const DraftPrice& price() const { return price_; }
  /// Whether nothing is to be proposed in this step.
  bool rests() const { return balance_.rests(); }
  /// Cuts the trees of the step that begin() opened. A drawn node is cut with its whole sibling
  /// group, by what its parent and their row say alone (design, exactness: a drawn token may not be
  /// dropped for what it is).
  void choose(std::span<const BudgetedTree> step);

  /// After the step, once a sequence: what was proposed and what was emitted in fact.
  void learn(std::span<const ProposedNode> proposed, std::span<const int32_t> emitted);
  /// Closes the step with its times.
  void end(int emitted, double draft_seconds, double target_seconds);

  // What choose() expected, for records.
  double expected_tokens() const { return expected_tokens_; }    // of all sequences
  double expected_seconds() const { return expected_seconds_; }  // of the pass
  double plain_seconds() const { return plain_seconds_; }        // of the pass without drafts

 private:
  /// Nodes that are kept or cut together.
  struct Unit {
    size_t tree = 0;
    int first = 0;  // its first node; the others are `first`'s siblings, or the tree's other probes
    int rows = 0;
    double gain = 0;      // expected tokens
    double accepted = 0;  // P(one given node of it is accepted, with all above it)
    double density() const { return gain / rows; }
  };
  struct Chosen {
    size_t tree;
    int node;
  };
  void open_roots(const TokenTree& tree, size_t index);
  void open_children(const TokenTree& tree, size_t index, int parent, double reached);
  void take(const TokenTree& tree, const Unit& unit);
  void cut(std::span<const BudgetedTree> step, std::span<const Chosen> kept);
  static bool less_dense(const Unit& a, const Unit& b);
  void push(const Unit& unit);
  Unit pop_densest();
  double tokens_per_second() const { return tokens_ / seconds_; }

  CostCurve* costs_;
  Calibration calibration_;
  DraftPrice price_;
  DraftBalance balance_;
  PassSize plain_, chosen_;
  double tokens_ = 0, seconds_ = 0;
  double expected_tokens_ = 0, expected_seconds_ = 0, plain_seconds_ = 0;
  int sequences_ = 0;
  double probe_gain_ = 1.0;
  bool probed_ = false;
  int quiet_steps_ = 0, patience_ = 0;
  bool proposed_ = false;
  std::vector<double> pass_seconds_;
  std::vector<Unit> heap_;
  std::vector<Chosen> order_;
  std::vector<std::vector<uint8_t>> keep_;
};

}  // namespace coppice
