// What a drafter's scores are worth: the share of nodes that were accepted, learnt online by source
// and score. A score stands for itself until there is evidence.
//
//   calibration.learn(source, score, accepted);
//   double p = calibration.acceptance(source, score);
#pragma once

#include <array>
#include <vector>

namespace coppice {

class Calibration {
 public:
  /// Estimate of P(accepted | parent accepted) for a node with this score, in (0, 1).
  double acceptance(int source, float score) const;
  void learn(int source, float score, bool accepted);

 private:
  static constexpr int kBins = 10;  // of equal width
  struct Count {
    double tried = 0, accepted = 0;
  };
  struct Source {
    double expected = 0;  // sum of the scores of the nodes tried
    double accepted = 0;
    std::array<Count, kBins> bins;
  };
  std::vector<Source> sources_;
};

}  // namespace coppice
