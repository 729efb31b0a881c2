// Which layers a self-speculating model should leave out: a search over subsets for the least time
// a token, as Draft & Verify (Zhang 2023, section 3.2) does. There Bayesian optimisation proposes
// the next subset; here a fixed number of evaluations is spent on random subsets, then on small
// changes of the best, which needs no library and comes close on models of tens of layers.
//
//   TriedSkip best = search_skips(30, {.evaluations = 40}, seconds_per_token, print_it);
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace coppice {

struct TriedSkip {
  std::vector<int> skip;  // layers left out, ascending
  double cost = 0.0;
};

struct LayerSearch {
  int evaluations = 40;
  uint64_t seed = 0;
};

/// The cheapest of the subsets tried, each tried once; every one leaves a layer out and keeps one.
/// `report` is called after each evaluation. The first subset is every second layer.
TriedSkip search_skips(int layers, const LayerSearch& search,
                       const std::function<double(const std::vector<int>& skip)>& cost,
                       const std::function<void(const TriedSkip& tried, bool best)>& report);

}  // namespace coppice
