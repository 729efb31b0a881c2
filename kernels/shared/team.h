// A team: the threads that work on one row together. On the host it is one thread, on a device a
// block (kernels/cuda/block_team.cuh), and both give the same bits: sums of doubles are added in
// one order that is fixed by kTeamLanes, whole numbers and maxima in any.
//
//   const double total = team.sum(vocabulary, [&](int i) { return residual[i]; });
#pragma once

#include <cstdint>

#include "kernels/shared/draw.h"
#include "kernels/shared/host_device.h"

namespace coppice {

/// Value i of a sum is added to lane i % kTeamLanes, in order; then lanes fold onto their lower
/// half. Also the threads of a device's block.
inline constexpr int kTeamLanes = 512;
/// Bins of a team's histogram.
inline constexpr int kTeamBins = 256;

/// The largest of many scores and whose it is; of equal ones the lowest index. index -1: none is
/// above minus infinity.
struct Best {
  double score;
  int32_t index;
};
COPPICE_HD inline bool better(const Best& a, const Best& b) {
  return a.index >= 0 &&
         (b.index < 0 || a.score > b.score || (a.score == b.score && a.index < b.index));
}

/// The host's team. Its functions say what every team's do; all threads of a team call them alike.
class LoneTeam {
 public:
  COPPICE_HD bool leads() const { return true; }
  /// Everything written before is seen by the whole team after.
  COPPICE_HD void wait() const {}

  /// f(i) for i in 0..count-1, in any order; then waits.
  template <class F>
  COPPICE_HD void for_each(int count, const F& f) const {
    for (int i = 0; i < count; ++i) f(i);
  }
  template <class F>
  COPPICE_HD double sum(int count, const F& f) const {
    int width = 1;  // lanes behind it stay 0, and adding 0 changes no bit
    while (width < count && width < kTeamLanes) width *= 2;
    double lane[kTeamLanes];
    for (int l = 0; l < width; ++l) lane[l] = 0.0;
    for (int first = 0; first < count; first += kTeamLanes) {
      const int here = count - first < kTeamLanes ? count - first : kTeamLanes;
      for (int l = 0; l < here; ++l) lane[l] += f(first + l);
    }
    for (int half = width / 2; half > 0; half /= 2) {
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    }
    return lane[0];
  }
  /// Of whole numbers.
  template <class F>
  COPPICE_HD uint64_t count(int count, const F& f) const {
    uint64_t total = 0;
    for (int i = 0; i < count; ++i) total += f(i);
    return total;
  }
  /// The best of count parts; part i gives its own best.
  template <class F>
  COPPICE_HD Best best(int count, const F& f) const {
    Best found{0.0, -1};
    for (int i = 0; i < count; ++i) {
      const Best part = f(i);
      if (better(part, found)) found = part;
    }
    return found;
  }

  /// inverse_cdf of kernels/shared/walk.h.
  template <class Weights>
  COPPICE_HD int draw(const Weights& weights, int count, double total, double uniform) const {
    return inverse_cdf(weights, count, total, uniform);
  }

  // A histogram of masses: cleared, added to, waited for, read.
  COPPICE_HD void clear_bins() {
    for (int b = 0; b < kTeamBins; ++b) mass_[b] = members_[b] = 0;
  }
  COPPICE_HD void add_to_bin(int bin, uint64_t mass) {
    mass_[bin] += mass;
    ++members_[bin];
  }
  COPPICE_HD uint64_t mass(int bin) const { return mass_[bin]; }
  COPPICE_HD uint64_t members(int bin) const { return members_[bin]; }

 private:
  uint64_t mass_[kTeamBins];
  uint64_t members_[kTeamBins];
};

}  // namespace coppice
