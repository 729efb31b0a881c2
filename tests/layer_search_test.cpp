// The search for layers to leave out, on costs whose optimum is known.
#include "experiments/layer_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace coppice {
namespace {

// Leaving a layer out saves time, but six of the layers matter too much.
double toy_cost(const std::vector<int>& skip) {
  double cost = 30.0;
  for (const int layer : skip) cost += layer % 5 == 0 ? 4.0 : -1.0;
  return cost;
}

TEST(LayerSearch, ComesCloseToTheOptimumInFewEvaluations) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    std::set<std::vector<int>> seen;
    double least = 1e9;
    const TriedSkip best =
        search_skips(30, {.evaluations = 120, .seed = seed}, toy_cost,
                     [&](const TriedSkip& tried, bool improved) {
                       EXPECT_TRUE(seen.insert(tried.skip).second);
                       EXPECT_TRUE(std::is_sorted(tried.skip.begin(), tried.skip.end()));
                       EXPECT_GT(tried.skip.size(), 0u);
                       EXPECT_LT(tried.skip.size(), 30u);
                       EXPECT_EQ(improved, tried.cost < least);
                       least = std::min(least, tried.cost);
                     });
    EXPECT_EQ(seen.size(), 120u);
    EXPECT_EQ(best.cost, least);
    EXPECT_EQ(best.cost, toy_cost(best.skip));
    EXPECT_LE(best.cost, 12.0) << "seed " << seed;  // the optimum is 6, the start 31
  }
}

TEST(LayerSearch, EndsWhenASmallModelHasNoMoreSubsets) {
  int evaluated = 0;
  const TriedSkip best =
      search_skips(3, {.evaluations = 50}, toy_cost, [&](const TriedSkip&, bool) { ++evaluated; });
  EXPECT_EQ(evaluated, 6);
  EXPECT_EQ(best.skip, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace coppice
