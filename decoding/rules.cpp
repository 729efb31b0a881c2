// The rules, by name: each joins a walk of kernels/shared/walk.h to a tree and its target rows.
//
//   auto rule = make_rule("coupled");
#include <array>

#include "decoding/acceptance.h"
#include "kernels/base/error.h"
#include "kernels/shared/walk.h"

namespace coppice {
namespace {

/// A token tree as the walks read one.
struct WalkedTree {
  const TokenTree& tree;

  int first_child(int node) const { return tree.first_child(node); }
  int next_sibling(int node) const { return tree.next_sibling(node); }
  int depth(int node) const { return tree.depth(node); }
  int32_t token(int node) const { return tree.token(node); }
  bool verify(int node) const { return tree.role(node) == NodeRole::verify; }
  Proposal proposal(int node) const {
    if (tree.q_row(node) == kPointMass) return {};
    const QRows::Row row = tree.q.row(tree.q_row(node));
    return {row.p.data(), row.ids.empty() ? nullptr : row.ids.data(),
            static_cast<int>(row.p.size()), row.without_replacement};
  }
};

/// Tokens and rows stay inside the target's vocabulary: a walk indexes p by them.
void check_fits(const TokenTree& tree, int vocabulary) {
  for (int node = 1; node < tree.size(); ++node) COPPICE_CHECK(tree.token(node) < vocabulary);
  for (int index = 0; index < tree.q.size(); ++index) {
    const QRows::Row row = tree.q.row(index);
    const int end = row.ids.empty() ? static_cast<int>(row.p.size()) : row.ids.back() + 1;
    COPPICE_CHECK(end <= vocabulary);
  }
}

class Greedy : public AcceptanceRule {
 public:
  std::string_view name() const override { return "greedy"; }
  bool lossless() const override { return true; }
  Draw draw() const override { return Draw::argmax; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    verdict.token = greedy_walk(WalkedTree{tree}, target, verdict.path);
  }
};

class Coupled : public AcceptanceRule {
 public:
  std::string_view name() const override { return "coupled"; }
  bool lossless() const override { return true; }
  Draw draw() const override { return Draw::coupled; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    verdict.token = coupled_walk(WalkedTree{tree}, target, verdict.path);
  }
};

class Rejection : public AcceptanceRule {
 public:
  std::string_view name() const override { return "rejection"; }
  bool lossless() const override { return true; }
  Draw draw() const override { return Draw::independent; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    if (target.sampler().params().temperature == 0.0f) {  // p is a point mass: nothing is chance
      verdict.token = greedy_walk(WalkedTree{tree}, target, verdict.path);
      return;
    }
    check_fits(tree, target.vocabulary());
    const size_t vocabulary = static_cast<size_t>(target.vocabulary());
    verdict.scratch.resize(2 * vocabulary);
    const RejectionScratch scratch{verdict.scratch.data(), verdict.scratch.data() + vocabulary};
    verdict.token = rejection_walk(WalkedTree{tree}, target, target, scratch, verdict.path);
  }
};

constexpr std::array<std::string_view, 3> kRuleNames = {"greedy", "coupled", "rejection"};

}  // namespace

std::span<const std::string_view> rule_names() {
  return kRuleNames;
}

std::unique_ptr<AcceptanceRule> make_rule(std::string_view name) {
  if (name == "greedy") return std::make_unique<Greedy>();
  if (name == "coupled") return std::make_unique<Coupled>();
  if (name == "rejection") return std::make_unique<Rejection>();
  throw Error("rule '{}' does not exist; there are greedy, coupled and rejection", name);
}

}  // namespace coppice
