// What a drafted token must earn now, for drafters that pay for each token they draft: they ask
// before they draft it.
//
//   while (job.price == nullptr || job.price->pays(next, rows, seconds)) draft_one_more();
#pragma once

#include <span>

#include "decoding/calibration.h"

namespace coppice {

struct DraftPrice {
  double tokens_per_second = 0;          // of the whole batch
  std::span<const double> pass_seconds;  // entry n: the target's pass with n rows of drafts
  const Calibration* calibration = nullptr;
  bool trial = false;  // nothing was drafted for a while: one token is paid for, to learn
  int source = 0;      // of the nodes that are priced

  /// What a score has proved to be worth.
  double acceptance(float score) const { return calibration->acceptance(source, score); }
  /// Whether it is expected to pay to go on: with `rows` drafted, the next token costs
  /// `draft_seconds` and is accepted, together with all above it, with `path_probability`. Those
  /// behind it are taken to follow at the same rate. Under independent draws the probability may
  /// come from ancestors and from averages, never from the token that is to be drawn.
  bool pays(double path_probability, int rows, double draft_seconds) const;
};

}  // namespace coppice
