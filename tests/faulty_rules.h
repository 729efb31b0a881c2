// A second, plain rejection rule straight from the papers, and the faults that published code had,
// one at a time. Sources of the faults: cases C001, C004 and others.
//
//   enumerate_case(TextbookRule(Fault::stale_sibling), toy).deviation   // clearly above 0
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "decoding/acceptance.h"

namespace coppice::test {

enum class Fault {
  none,
  first_untested,    // the token at depth 1 is kept without a look at the target
  residual_softmax,  // max(p - q, 0) through softmax instead of divided by its sum
  stale_sibling,     // the next sibling judged by p as it was before the first failed
  bonus_unwarped,    // the bonus drawn from the raw softmax
  one_uniform,       // the residual drawn by the uniform that the accept coin has used
};

/// Bears sampled siblings with replacement and dense rows only.
class TextbookRule : public AcceptanceRule {
 public:
  explicit TextbookRule(Fault fault) : fault_(fault) {}
  std::string_view name() const override { return "textbook"; }
  bool lossless() const override { return fault_ == Fault::none; }
  Draw draw() const override { return Draw::independent; }

  void judge(const TokenTree& tree, TargetRows& target, Verdict& verdict) const override {
    verdict.path.clear();
    for (int node = 0;;) {
      Weights p = normalised(target.p(node));
      const Weights p_before = p;
      Interval used;  // what the accept coins have said about a uniform shared with the draw
      int accepted = -1;
      for (int child = tree.first_child(node); child >= 0; child = tree.next_sibling(child)) {
        const Weights q = normalised(tree.q.row(tree.q_row(child)).p);
        const size_t x = static_cast<size_t>(tree.token(child));
        const Weights& judged_by = fault_ == Fault::stale_sibling ? p_before : p;
        double ratio = std::min(1.0, judged_by[x] / q[x]);
        if (fault_ == Fault::first_untested && tree.depth(child) == 1) ratio = 1.0;
        const double chance = fault_ == Fault::one_uniform ? used.part_below(ratio) : ratio;
        if (target.accept(chance, child)) {
          accepted = child;
          break;
        }
        used.low = std::max(used.low, ratio);
        for (size_t i = 0; i < p.size(); ++i) p[i] = std::max(p[i] - q[i], 0.0);
        if (fault_ == Fault::residual_softmax) {
          for (double& w : p) w = std::exp(w);
        }
        p = normalised(p);
      }
      if (accepted < 0) {
        const bool bonus = tree.first_child(node) < 0;
        if (bonus && fault_ == Fault::bonus_unwarped) p = raw_softmax(target.logits(node));
        if (fault_ == Fault::one_uniform) p = used.restrict(p);
        verdict.token = target.draw(p.data(), static_cast<int>(p.size()), sum(p), node,
                                    bonus ? Purpose::bonus : Purpose::residual);
        return;
      }
      verdict.path.push_back(accepted);
      node = accepted;
    }
  }

 private:
  using Weights = std::vector<double>;

  /// What is known of a uniform: it lies in [low, 1).
  struct Interval {
    double low = 0.0;
    double part_below(double x) const { return x <= low ? 0.0 : (x - low) / (1.0 - low); }
    /// The weights that a draw by inverse CDF of this uniform then has.
    Weights restrict(const Weights& p) const {
      Weights part;
      double begin = 0.0;
      for (const double w : p) {
        part.push_back(std::max(0.0, begin + w - std::max(begin, low)));
        begin += w;
      }
      return part;
    }
  };

  static double sum(const Weights& w) {
    double total = 0.0;
    for (const double x : w) total += x;
    return total;
  }
  template <class Row>
  static Weights normalised(const Row& row) {
    Weights w(row.begin(), row.end());
    const double total = sum(w);
    for (double& x : w) x /= total;
    return w;
  }
  static Weights raw_softmax(std::span<const float> logits) {
    Weights w;
    for (const float logit : logits) w.push_back(std::exp(static_cast<double>(logit)));
    return normalised(w);
  }

  Fault fault_;
};

}  // namespace coppice::test
