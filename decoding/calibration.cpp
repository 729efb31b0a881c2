// See calibration.h.
#include "decoding/calibration.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

// Evidence that a prior is worth: in expected acceptances of a source, whose scores are corrected
// as a whole first, and in nodes of a bin, which moves by itself later.
constexpr double kSourceWeight = 4.0;
constexpr double kBinWeight = 8.0;
constexpr double kMemory = 0.995;  // of old counts, a node: texts change as they go on
constexpr double kLeast = 1e-3, kMost = 0.995;

int bin_of(float score, int bins) {
  return std::clamp(static_cast<int>(score * static_cast<float>(bins)), 0, bins - 1);
}

}  // namespace

double Calibration::acceptance(int source, float score) const {
  const double own = std::clamp(static_cast<double>(score), kLeast, kMost);
  if (static_cast<size_t>(source) >= sources_.size()) return own;
  const Source& seen = sources_[static_cast<size_t>(source)];
  // Odds, so that a corrected share stays within 0..1.
  const double all = seen.expected + kSourceWeight;
  const double factor = (seen.accepted + kSourceWeight) / all;
  const double prior = factor <= 1.0 ? own * factor : 1.0 - (1.0 - own) / factor;
  const Count& bin = seen.bins[static_cast<size_t>(bin_of(score, kBins))];
  const double share = (bin.accepted + kBinWeight * prior) / (bin.tried + kBinWeight);
  return std::clamp(share, kLeast, kMost);
}

void Calibration::learn(int source, float score, bool accepted) {
  if (static_cast<size_t>(source) >= sources_.size()) {
    sources_.resize(static_cast<size_t>(source) + 1);
  }
  Source& seen = sources_[static_cast<size_t>(source)];
  seen.expected = kMemory * seen.expected + std::clamp(static_cast<double>(score), kLeast, kMost);
  seen.accepted = kMemory * seen.accepted + (accepted ? 1.0 : 0.0);
  Count& bin = seen.bins[static_cast<size_t>(bin_of(score, kBins))];
  bin.tried = kMemory * bin.tried + 1.0;
  bin.accepted = kMemory * bin.accepted + (accepted ? 1.0 : 0.0);
}

}  // namespace coppice
