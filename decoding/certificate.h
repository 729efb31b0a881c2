// The losslessness certificate: a rule, run through the production sampler and judge on
// vocabularies of a few tokens, emits exactly what the target alone would. Joint distributions are
// enumerated; rules whose text must equal the baseline's word for word are also run on addressed
// noise.
//
//   Certificate c = certify_rule(*make_rule("rejection"));
//   if (!c.holds()) fmt::print("{} deviates by {}\n", c.rule, c.largest_deviation());
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "decoding/acceptance.h"
#include "decoding/enumeration.h"

namespace coppice {

/// Logits (vocabulary) behind a context: a language model of a few tokens.
using ToyLogits = std::function<std::vector<float>(std::span<const int32_t> context)>;

/// An arbitrary but fixed model: every context has logits of its own, now and then with a tie.
struct ToyModel {
  uint64_t seed = 0;
  int vocabulary = 0;
  std::vector<float> operator()(std::span<const int32_t> context) const;
};

/// Grows `tree`, whose node 0 is the last token of `context`. All its chance comes from `coins`.
/// `sampler` is the sequence's own.
using ToyDrafter =
    std::function<void(const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree)>;

struct ToyCase {
  std::string name;
  int vocabulary = 0;
  ToyLogits target;
  SamplingParams sampling;
  ToyDrafter drafter;
  int length = 0;  // tokens whose joint distribution is compared
};

/// One step of the toy decoder, as the engine does it: draft, target logits at every node, judge.
struct ToyStep {
  TokenTree tree;
  Verdict verdict;
  Tokens emitted;
};
/// `rule_coins` null: addressed noise.
ToyStep run_step(const AcceptanceRule& rule, const ToyCase& toy, Sampler& sampler,
                 const Tokens& context, Coins& drafter_coins, Coins* rule_coins);

/// Drafters of every kind a rule must bear, against every kind of warp.
std::vector<ToyCase> certificate_cases();

struct CertifiedCase {
  std::string name;
  int64_t runs = 0;        // enumerated outcomes, or texts compared
  double deviation = 0.0;  // of a sequence's probability, or the part of texts that differ
};

/// Largest deviation of the rule's joint distribution from the target's own. `sampling` of a rule
/// that draws by argmax is taken at temperature 0.
CertifiedCase enumerate_case(const AcceptanceRule& rule, const ToyCase& toy);
/// The part of `texts` seeds under which the rule's text differs from the baseline's.
CertifiedCase compare_texts(const AcceptanceRule& rule, const SamplingParams& sampling, int texts);

struct Certificate {
  /// Enumerated probabilities are sums of doubles: what exact rules differ by is rounding.
  static constexpr double kTolerance = 1e-12;

  std::string rule;
  std::vector<CertifiedCase> cases;

  double largest_deviation() const;
  int64_t runs() const;
  bool holds() const { return largest_deviation() <= kTolerance; }
};

Certificate certify_rule(const AcceptanceRule& rule);

}  // namespace coppice
