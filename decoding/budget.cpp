// See budget.h.
#include "decoding/budget.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

constexpr double kMemory = 0.9;                          // of tokens per second, a step
constexpr double kPriorSteps = 8.0;                      // plain steps the rate begins with
constexpr double kProbeMemory = 0.97;                    // of the gain of probes, a step
constexpr int kFirstPatience = 16, kMostPatience = 256;  // steps without a draft before a trial
constexpr int kMostPriced = 64;                          // rows of drafts that a price lists

}  // namespace

void AutoBudget::begin(std::span<const BudgetedTree> step) {
  plain_ = {};
  sequences_ = static_cast<int>(step.size());
  for (const BudgetedTree& budgeted : step) {
    plain_.rows += 1;
    plain_.keys += budgeted.context;
    plain_.row_keys += budgeted.context;
  }
  plain_seconds_ = costs_->seconds(plain_);
  expected_seconds_ = plain_seconds_;
  chosen_ = plain_;
  expected_tokens_ = static_cast<double>(step.size());
  if (seconds_ == 0) {
    tokens_ = kPriorSteps * expected_tokens_;
    seconds_ = kPriorSteps * plain_seconds_;
  }
  const double context = step.empty() ? 0.0 : plain_.keys / static_cast<double>(step.size());
  pass_seconds_.clear();
  for (int n = 0; n <= kMostPriced; ++n) {
    pass_seconds_.push_back(
        costs_->seconds({plain_.rows + n, plain_.keys, plain_.row_keys + n * context}));
  }
  price_ = {tokens_per_second(), pass_seconds_, &calibration_,
            quiet_steps_ >= std::max(patience_, kFirstPatience)};
  proposed_ = false;
  probed_ = false;
}

bool AutoBudget::less_dense(const Unit& a, const Unit& b) {
  return a.density() < b.density();
}

void AutoBudget::push(const Unit& unit) {
  heap_.push_back(unit);
  std::push_heap(heap_.begin(), heap_.end(), less_dense);
}

AutoBudget::Unit AutoBudget::pop_densest() {
  std::pop_heap(heap_.begin(), heap_.end(), less_dense);
  const Unit unit = heap_.back();
  heap_.pop_back();
  return unit;
}

// Makes units of what can be kept first: the children of node 0, and the probes.
void AutoBudget::open_roots(const TokenTree& tree, size_t index) {
  open_children(tree, index, 0, 1.0);
  // A tree's probes are one unit: half a window teaches nothing.
  int probes = 0, first = 0;
  for (int node = tree.size() - 1; node > 0; --node) {
    if (tree.role(node) != NodeRole::probe) continue;
    ++probes;
    first = node;
  }
  if (probes > 0) push({index, first, probes, probe_gain_, 0.0});
}

// Makes units of the children of a node that is reached with a given probability.
void AutoBudget::open_children(const TokenTree& tree, size_t index, int parent, double reached) {
  for (int child = tree.first_child(parent); child >= 0; child = tree.next_sibling(child)) {
    if (tree.role(child) == NodeRole::probe) continue;
    const double accepted = calibration_.acceptance(tree.source(child), tree.score(child));
    if (tree.q_row(child) == kPointMass) {
      push({index, child, 1, reached * accepted, reached * accepted});
      continue;
    }
    bool first = true;
    int rows = 0;
    for (int other = tree.first_child(parent); other >= 0; other = tree.next_sibling(other)) {
      if (tree.q_row(other) != tree.q_row(child)) continue;
      first = first && other >= child;
      ++rows;
    }
    const double any = 1.0 - std::pow(1.0 - accepted, rows);
    if (first) push({index, child, rows, reached * any, reached * accepted});
  }
}

// Notes a unit's nodes as the next to keep, and opens the units behind them.
void AutoBudget::take(const TokenTree& tree, const Unit& unit) {
  if (tree.role(unit.first) == NodeRole::probe) {
    for (int node = unit.first; node < tree.size(); ++node) {
      if (tree.role(node) == NodeRole::probe) order_.push_back({unit.tree, node});
    }
    return;
  }
  const bool drawn = tree.q_row(unit.first) != kPointMass;
  for (int node = unit.first; node >= 0; node = drawn ? tree.next_sibling(node) : -1) {
    if (tree.q_row(node) != tree.q_row(unit.first)) continue;
    order_.push_back({unit.tree, node});
    open_children(tree, unit.tree, node, unit.accepted);
  }
}

void AutoBudget::choose(std::span<const BudgetedTree> step) {
  heap_.clear();
  order_.clear();
  for (size_t i = 0; i < step.size(); ++i) {
    proposed_ = proposed_ || step[i].tree->size() > 1;
    open_roots(*step[i].tree, i);
  }

  const double lambda = tokens_per_second();
  PassSize pass = plain_;
  double tokens = 0.0, best = 0.0;
  size_t kept = 0;
  while (!heap_.empty()) {
    const Unit unit = pop_densest();
    const BudgetedTree& budgeted = step[unit.tree];
    take(*budgeted.tree, unit);
    pass.rows += unit.rows;
    pass.row_keys += static_cast<double>(unit.rows) * budgeted.context;
    tokens += unit.gain;
    const double seconds = costs_->seconds(pass);
    const double worth = tokens - kCaution * lambda * (seconds - plain_seconds_);
    if (worth > best) {
      best = worth;
      kept = order_.size();
      expected_tokens_ = static_cast<double>(step.size()) + tokens;
      expected_seconds_ = seconds;
      chosen_ = pass;
    }
  }
  cut(step, std::span(order_).first(kept));
}

void AutoBudget::cut(std::span<const BudgetedTree> step, std::span<const Chosen> kept) {
  if (keep_.size() < step.size()) keep_.resize(step.size());
  for (size_t i = 0; i < step.size(); ++i) {
    keep_[i].assign(static_cast<size_t>(step[i].tree->size()), 0);
    keep_[i][0] = 1;
  }
  for (const Chosen& node : kept) {
    keep_[node.tree][static_cast<size_t>(node.node)] = 1;
    probed_ = probed_ || step[node.tree].tree->role(node.node) == NodeRole::probe;
  }
  for (size_t i = 0; i < step.size(); ++i) step[i].tree->cut(keep_[i]);
}

// Nodes that were cut teach as much as those that were kept: the text says whether they were right.
void AutoBudget::learn(std::span<const ProposedNode> proposed, std::span<const int32_t> emitted) {
  int reached = 0;
  int hits = 0;
  for (const int32_t token : emitted) {
    int next = -1;
    for (int node = reached + 1; node < static_cast<int>(proposed.size()); ++node) {
      const ProposedNode& child = proposed[static_cast<size_t>(node)];
      if (child.parent != reached || child.role == NodeRole::probe) continue;
      const bool accepted = child.token == token && next < 0;
      calibration_.learn(child.source, child.score, accepted);
      if (accepted) next = node;
    }
    if (next < 0) break;
    ++hits;
    reached = next;
  }
  if (probed_) probe_gain_ = kProbeMemory * probe_gain_ + (1.0 - kProbeMemory) * hits;
}

void AutoBudget::end(int emitted, double draft_seconds, double target_seconds) {
  costs_->learn(chosen_, target_seconds);
  tokens_ = kMemory * tokens_ + emitted;
  seconds_ = kMemory * seconds_ + expected_seconds_ + draft_seconds;
  const double spent = draft_seconds + expected_seconds_ - plain_seconds_;
  balance_.learn(static_cast<double>(emitted) / sequences_ - 1.0 - spent / plain_seconds_);
  if (proposed_) {
    patience_ = price_.trial ? std::min(2 * std::max(patience_, kFirstPatience), kMostPatience)
                             : kFirstPatience;
    quiet_steps_ = 0;
  } else {
    ++quiet_steps_;
  }
}

}  // namespace coppice
