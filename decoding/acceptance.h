// The acceptance rule: walks a drafted tree against the target's distributions and says which path
// is kept and which token follows it. Sources: Leviathan 2023 and Chen 2023 (rejection), SpecInfer
// and Sequoia 2024 (trees), Daliri 2024 (coupled).
//
//   Verdict v = rule.judge(tree, target, noise);   // emits tokens of v.path, then v.token
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sampling.h"
#include "core/token_tree.h"

namespace coppice {

/// How a drafter that samples draws its tokens under a rule.
enum class Draw {
  argmax,       // the most probable tokens: point masses
  coupled,      // argmax(log q + the target's own Gumbel noise): point masses
  independent,  // from q with noise of its own; the node keeps its q row
};

/// The target's logits at a tree's nodes, warped only when a rule asks.
class TargetRows {
 public:
  /// `logits` has one pointer a node (repeated siblings may share one); `history` ends with node
  /// 0's token, whose position is history.size() - 1.
  TargetRows(Sampler& sampler, const TokenTree& tree, std::span<const float* const> logits,
             int logits_per_row, std::span<const int32_t> history);

  int32_t argmax(int node);
  int32_t coupled(int node);
  std::span<const float> p(int node);  // valid until the next call
  int vocabulary() const;
  /// Absolute position of node 0.
  int root_position() const { return static_cast<int>(history_.size()) - 1; }

 private:
  std::span<const float> row(int node) const;
  TokenContext context(int node);

  Sampler* sampler_;
  const TokenTree* tree_;
  std::span<const float* const> logits_;
  int logits_per_row_;
  std::span<const int32_t> history_;
  std::vector<int32_t> path_;
};

struct Verdict {
  std::vector<int> path;  // accepted nodes, from depth 1 down
  int32_t token = 0;      // follows the path: the bonus, or the replacement of what was rejected
};

class AcceptanceRule {
 public:
  virtual ~AcceptanceRule() = default;
  virtual std::string_view name() const = 0;
  /// Emitted tokens have exactly the baseline's distribution.
  virtual bool lossless() const = 0;
  virtual Draw draw() const = 0;
  /// Reads only; `verdict` is overwritten (its memory is reused).
  virtual void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const = 0;
};

/// "greedy", "coupled", "rejection". Throws Error naming the rules there are.
std::unique_ptr<AcceptanceRule> make_rule(std::string_view name);
std::span<const std::string_view> rule_names();

}  // namespace coppice
