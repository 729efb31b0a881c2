// Exact output distributions of small decoders: every answer that chance can give is tried, with
// its probability. What `coppice verify` and the tests prove rules with.
//
//   Law law = joint_law(step, {0}, 3);            // of the three tokens after token 0
//   EXPECT_LT(largest_difference(law, baseline), 1e-12);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "decoding/acceptance.h"

namespace coppice {

/// Coins whose every answer is tried in turn, depth first.
class Enumeration : public Coins {
 public:
  /// Runs once for each sequence of answers of positive probability. A run asks its decisions in an
  /// order that depends on the answers alone.
  template <class Run>
  void for_each(Run run) {
    decisions_.clear();
    do {
      asked_ = 0;
      probability_ = 1.0;
      run();
    } while (advance());
  }

  bool accept(double probability) override;
  int draw(std::span<const double> weights, double total) override;
  /// Of the answers given in this run so far.
  double probability() const { return probability_; }

 private:
  struct Decision {
    std::vector<double> probability;  // of each answer
    int answer = 0;
  };
  int choose(std::vector<double> probabilities);
  bool advance();

  std::vector<Decision> decisions_;
  size_t asked_ = 0;
  double probability_ = 1.0;
};

using Tokens = std::vector<int32_t>;
using Law = std::map<Tokens, double>;

/// One step of a decoder: the tokens, one or more, that follow `context`. Depends on the context
/// and on the coins alone.
using DecodingStep = std::function<Tokens(const Tokens& context, Coins& coins)>;

/// The joint distribution of the first `length` tokens after `prompt`, over as many steps as that
/// takes. `runs` (may be null) is increased by the number of enumerated runs.
Law joint_law(const DecodingStep& step, const Tokens& prompt, int length, int64_t* runs = nullptr);

/// Largest difference of a sequence's probability.
double largest_difference(const Law& a, const Law& b);

}  // namespace coppice
