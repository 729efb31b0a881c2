// The rules, by name: each joins a walk of kernels/shared/walk.h to a tree and its target rows.
//
//   auto rule = make_rule("typical", {{"epsilon", 0.1, "--set"}});
#include <algorithm>
#include <array>

#include "core/quote.h"
#include "decoding/acceptance.h"
#include "kernels/base/error.h"
#include "kernels/shared/walk.h"

namespace coppice {
namespace {

/// A token tree as the walks read one.
struct WalkedTree {
  const TokenTree& tree;

  int size() const { return tree.size(); }
  int parent(int node) const { return tree.parent(node); }
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
    LoneTeam team;
    verdict.token = rejection_walk(team, WalkedTree{tree}, target, target, scratch, verdict.path);
  }
};

/// Medusa's published values.
struct TypicalOptions {
  double epsilon = 0.09;
  double delta = 0.3;

  template <class V>
  void visit(V& v) {
    v("epsilon", epsilon, "a token this likely is always typical", Range{0, 1});
    v("delta", delta, "times exp(-entropy): the bound where the target is unsure", Range{0, 1e6});
  }
};

class Typical : public AcceptanceRule {
 public:
  explicit Typical(const TypicalOptions& options) : options_(options) {}
  std::string_view name() const override { return "typical"; }
  bool lossless() const override { return false; }
  Draw draw() const override { return Draw::coupled; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    check_fits(tree, target.vocabulary());
    verdict.scratch.resize(static_cast<size_t>(tree.size()));
    verdict.token = typical_walk(WalkedTree{tree}, target, options_.epsilon, options_.delta,
                                 verdict.scratch.data(), verdict.path);
  }

 private:
  TypicalOptions options_;
};

struct ThresholdOptions {
  int top = 3;
  double gap = 1.0;

  template <class V>
  void visit(V& v) {
    v("top", top, "the token is among this many most likely ones", Range{1, 1e9});
    v("gap", gap, "and at most this many nats less likely than the first", Range{0, 1e9});
  }
};

class Threshold : public AcceptanceRule {
 public:
  explicit Threshold(const ThresholdOptions& options) : options_(options) {}
  std::string_view name() const override { return "threshold"; }
  bool lossless() const override { return false; }
  Draw draw() const override { return Draw::coupled; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    check_fits(tree, target.vocabulary());
    const double temperature = target.sampler().params().temperature;
    verdict.token = threshold_walk(WalkedTree{tree}, target, options_.top, options_.gap,
                                   temperature > 0.0 ? 1.0 / temperature : 1.0, verdict.path);
  }

 private:
  ThresholdOptions options_;
};

struct ForcedOptions {
  std::vector<double> acceptance = {0.8};

  template <class V>
  void visit(V& v) {
    v("acceptance", acceptance, "probability by draft position; the last serves for all behind it",
      Range{0, 1});
  }
};

class Forced : public AcceptanceRule {
 public:
  explicit Forced(ForcedOptions options) : options_(std::move(options)) {
    if (options_.acceptance.empty()) {
      throw Error("forced.acceptance: is empty; give a probability, such as [0.8]");
    }
  }
  std::string_view name() const override { return "forced"; }
  bool lossless() const override { return false; }
  bool valid() const override { return false; }
  Draw draw() const override { return Draw::coupled; }
  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    verdict.token = forced_walk(WalkedTree{tree}, target, target, options_.acceptance.data(),
                                static_cast<int>(options_.acceptance.size()), verdict.path);
  }

 private:
  ForcedOptions options_;
};

template <class Options, class Rule>
std::unique_ptr<AcceptanceRule> make(const OptionMap& options) {
  if constexpr (std::is_same_v<Options, NoOptions>) {
    read_options<NoOptions>(options, "rule");
    return std::make_unique<Rule>();
  } else {
    return std::make_unique<Rule>(read_options<Options>(options, "rule"));
  }
}

// Columns: name, paper, summary, options, maker, walk of a backend.
constexpr RuleEntry kRules[] = {
    {"greedy", "-", "the target's most likely token, or none", describe_options<NoOptions>,
     make<NoOptions, Greedy>, Judge::Rule::greedy},
    {"coupled", "Daliri 2024", "the draw that the target makes by the position's own noise",
     describe_options<NoOptions>, make<NoOptions, Coupled>, Judge::Rule::coupled},
    {"rejection", "Leviathan 2023, Chen 2023, Miao 2024, Chen 2024",
     "accepted by p / q, or replaced from what is left", describe_options<NoOptions>,
     make<NoOptions, Rejection>, Judge::Rule::rejection},
    {"typical", "Cai 2024", "every token that is not too unlikely for the target's entropy",
     describe_options<TypicalOptions>, make<TypicalOptions, Typical>},
    {"threshold", "Xia 2023, Stern 2018", "every token near enough to the target's first",
     describe_options<ThresholdOptions>, make<ThresholdOptions, Threshold>},
    {"forced", "-", "accepts by coin, for timing alone: the text means nothing",
     describe_options<ForcedOptions>, make<ForcedOptions, Forced>},
};

template <size_t... I>
constexpr auto names_of(std::index_sequence<I...>) {
  return std::array<std::string_view, sizeof...(I)>{kRules[I].name...};
}
constexpr auto kRuleNames = names_of(std::make_index_sequence<std::size(kRules)>());

}  // namespace

std::string_view mark_of(const AcceptanceRule& rule) {
  if (!rule.valid()) return "invalid";
  return rule.lossless() ? "" : "lossy";
}

std::span<const RuleEntry> rules() {
  return kRules;
}

std::span<const std::string_view> rule_names() {
  return kRuleNames;
}

const RuleEntry& find_rule(std::string_view name) {
  const auto at = std::find(kRuleNames.begin(), kRuleNames.end(), name);
  if (at == kRuleNames.end()) {
    throw Error("rule {} does not exist{}", quote(name), suggest_word(name, kRuleNames));
  }
  return kRules[at - kRuleNames.begin()];
}

std::optional<Judge::Rule> walk_of(const AcceptanceRule& rule, float temperature) {
  const auto at = std::find(kRuleNames.begin(), kRuleNames.end(), rule.name());
  if (at == kRuleNames.end()) return std::nullopt;
  const std::optional<Judge::Rule> walk = kRules[at - kRuleNames.begin()].walk;
  return walk && temperature == 0.0f ? Judge::Rule::greedy : walk;
}

std::unique_ptr<AcceptanceRule> make_rule(std::string_view name, const OptionMap& options) {
  return find_rule(name).make(options);
}

}  // namespace coppice
