// See layer_search.h.
#include "experiments/layer_search.h"

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using Chosen = std::vector<bool>;  // (layers): left out

std::vector<int> to_list(const Chosen& chosen) {
  std::vector<int> list;
  for (size_t layer = 0; layer < chosen.size(); ++layer) {
    if (chosen[layer]) list.push_back(static_cast<int>(layer));
  }
  return list;
}

bool is_possible(const Chosen& chosen) {
  const auto skipped = std::count(chosen.begin(), chosen.end(), true);
  return skipped > 0 && skipped < static_cast<ptrdiff_t>(chosen.size());
}

}  // namespace

TriedSkip search_skips(int layers, const LayerSearch& search,
                       const std::function<double(const std::vector<int>& skip)>& cost,
                       const std::function<void(const TriedSkip& tried, bool best)>& report) {
  COPPICE_CHECK(layers > 1 && search.evaluations > 0);
  constexpr int kMostRepeats = 1000;  // of subsets tried before: a small model runs out of them
  std::mt19937_64 random(search.seed);
  const size_t count = static_cast<size_t>(layers);
  Chosen next(count), best_chosen;
  for (size_t layer = 1; layer + 1 < count || layer == 1; layer += 2) next[layer] = true;
  std::set<Chosen> tried;
  TriedSkip best{{}, std::numeric_limits<double>::infinity()};
  while (static_cast<int>(tried.size()) < search.evaluations) {
    tried.insert(next);
    TriedSkip now{to_list(next), 0.0};
    now.cost = cost(now.skip);
    const bool improved = now.cost < best.cost;
    if (improved) {
      best = now;
      best_chosen = next;
    }
    report(now, improved);
    // A third of the evaluations goes to subsets of any size, the rest to neighbours of the best:
    // one to three layers changed.
    const bool explores = 3 * static_cast<int>(tried.size()) < search.evaluations;
    for (int repeat = 0; tried.count(next) > 0 || !is_possible(next); ++repeat) {
      if (repeat == kMostRepeats) return best;
      if (explores) {
        const uint64_t share = 1 + random() % 5;  // of ten layers: small models bear little
        for (size_t layer = 0; layer < count; ++layer) next[layer] = random() % 10 < share;
      } else {
        next = best_chosen;
        for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
          next[random() % count].flip();
        }
      }
    }
  }
  return best;
}

}  // namespace coppice
