// The acceptance rule: walks a drafted tree against the target's distributions and says which path
// is kept and which token follows it. Sources: Leviathan 2023 and Chen 2023 (rejection), SpecInfer
// and Sequoia 2024 (trees), Daliri 2024 (coupled), Cai 2024 and Xia 2023 (lossy ones).
//
//   TargetRows target(sampler, tree, logits, logits_per_row, tokens);
//   rule.judge(tree, target, verdict);   // emits the tokens of verdict.path, then verdict.token
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "core/sampling.h"
#include "core/token_tree.h"
#include "kernels/backend.h"

namespace coppice {

/// How a drafter that samples draws its tokens under a rule.
enum class Draw {
  argmax,       // the most probable tokens: point masses
  coupled,      // argmax(log q + the target's own Gumbel noise): point masses
  independent,  // from q with noise of its own; the node keeps its q row
};

/// Answers to what chance decides, in place of addressed noise: a certificate or a test enumerates
/// every answer with its probability.
class Coins {
 public:
  virtual ~Coins() = default;
  /// True with `probability`, in 0..1.
  virtual bool accept(double probability) = 0;
  /// An index, drawn with probability weights[index] / total.
  virtual int draw(std::span<const double> weights, double total) = 0;
};

/// Something a rule asked its target or its coins about a node, and the answer.
struct Question {
  enum class Kind { argmax, coupled, accept, draw };
  Kind kind = Kind::argmax;
  int node = 0;
  int32_t token = -1;        // argmax, coupled, draw: what it was
  Purpose purpose{};         // draw: residual or bonus
  double probability = 0.0;  // accept: of a yes
  double uniform = 0.0;      // accept, draw: the number that decided, in [0, 1)
  bool accepted = false;     // accept
};

/// The target's logits at a tree's nodes, warped only when a rule asks, and the chance a rule may
/// use. Throws Failure as Sampler does.
class TargetRows {
 public:
  /// `logits` has one pointer a node (repeated siblings may share one); `history` ends with node
  /// 0's token, whose position is history.size() - 1. With `coins`, coupled() is drawn by them too.
  TargetRows(Sampler& sampler, const TokenTree& tree, std::span<const float* const> logits,
             int logits_per_row, std::span<const int32_t> history, Coins* coins = nullptr);

  int32_t argmax(int node);
  /// The baseline's own draw for the token that follows `node`.
  int32_t coupled(int node);
  std::span<const float> p(int node);       // valid until the next call
  std::span<const float> scores(int node);  // logits after penalties and masks; likewise
  /// As the model gave them; unlike p(), they may be longer than the vocabulary.
  std::span<const float> logits(int node) const;
  int vocabulary() const { return sampler_->vocabulary(); }
  const Sampler& sampler() const { return *sampler_; }
  /// Absolute position of node 0.
  int root_position() const { return static_cast<int>(history_.size()) - 1; }

  /// The accept coin of `node`: one a step.
  bool accept(double probability, int node);
  /// An index of weights (count), drawn with probability weight / total; one draw a purpose and
  /// depth. `node` is the one it follows.
  int draw(const double* weights, int count, double total, int node, Purpose purpose);
  /// From now on every question is written to `asked`, in the order in which it comes; null: to
  /// nobody.
  void listen(std::vector<Question>* asked) { asked_ = asked; }

 private:
  int32_t told(Question question) const;
  TokenContext context(int node);
  double uniform(int node, Purpose purpose, uint32_t lane) const;

  Sampler* sampler_;
  const TokenTree* tree_;
  std::span<const float* const> logits_;
  int logits_per_row_;
  std::span<const int32_t> history_;
  Coins* coins_;
  std::vector<Question>* asked_ = nullptr;
  std::vector<int32_t> path_;
};

struct Verdict {
  std::vector<int> path;        // accepted nodes, from depth 1 down
  int32_t token = 0;            // follows the path: the bonus, or the replacement of what failed
  std::vector<double> scratch;  // a rule's own memory, kept from step to step
};

class AcceptanceRule {
 public:
  virtual ~AcceptanceRule() = default;
  virtual std::string_view name() const = 0;
  /// Emitted tokens have exactly the baseline's distribution.
  virtual bool lossless() const = 0;
  /// False: acceptance is forced, for timing alone, and the text means nothing.
  virtual bool valid() const { return true; }
  virtual Draw draw() const = 0;
  /// Reads only; `verdict` is overwritten (its memory is reused).
  virtual void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const = 0;
};

/// How tables and messages mark a rule: "" where it is lossless, "lossy", "invalid".
std::string_view mark_of(const AcceptanceRule& rule);

/// A rule's line in the list of rules. Its options stand under its name: `typical.epsilon`.
struct RuleEntry {
  std::string_view name;
  std::string_view paper;
  std::string_view summary;
  std::vector<OptionDoc> (*describe)();
  std::unique_ptr<AcceptanceRule> (*make)(const OptionMap& options);
  std::optional<Judge::Rule> walk = {};  // where a backend can judge by it
};

std::span<const RuleEntry> rules();
std::span<const std::string_view> rule_names();
/// Throws Error naming the rules there are.
const RuleEntry& find_rule(std::string_view name);
/// What a backend is asked to do in the rule's place, at a temperature; empty: it cannot.
std::optional<Judge::Rule> walk_of(const AcceptanceRule& rule, float temperature);
std::unique_ptr<AcceptanceRule> make_rule(std::string_view name, const OptionMap& options = {});

}  // namespace coppice
