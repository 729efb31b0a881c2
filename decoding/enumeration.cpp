// See enumeration.h.
#include "decoding/enumeration.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/error.h"

namespace coppice {
namespace {

/// First answer from `from` on that has a positive probability; the count of answers: none.
int next_possible(const std::vector<double>& probability, int from) {
  const auto at =
      std::find_if(probability.begin() + from, probability.end(), [](double p) { return p > 0.0; });
  return static_cast<int>(at - probability.begin());
}

}  // namespace

bool Enumeration::accept(double probability) {
  COPPICE_CHECK(probability >= 0.0 && probability <= 1.0);
  return choose({1.0 - probability, probability}) == 1;
}

int Enumeration::draw(std::span<const double> weights, double total) {
  std::vector<double> probabilities(weights.begin(), weights.end());
  for (double& p : probabilities) p /= total;
  return choose(std::move(probabilities));
}

int Enumeration::choose(std::vector<double> probabilities) {
  if (asked_ == decisions_.size()) {
    const int first = next_possible(probabilities, 0);
    COPPICE_CHECK(first < static_cast<int>(probabilities.size()));
    decisions_.push_back({std::move(probabilities), first});
  }
  const Decision& decision = decisions_[asked_++];
  probability_ *= decision.probability[static_cast<size_t>(decision.answer)];
  return decision.answer;
}

bool Enumeration::advance() {
  while (!decisions_.empty()) {
    Decision& last = decisions_.back();
    last.answer = next_possible(last.probability, last.answer + 1);
    if (last.answer < static_cast<int>(last.probability.size())) return true;
    decisions_.pop_back();
  }
  return false;
}

Law joint_law(const DecodingStep& step, const Tokens& prompt, int length, int64_t* runs) {
  // Contexts by the number of tokens they hold: all ways to one context go on as one.
  std::vector<Law> reached(static_cast<size_t>(length) + 1);
  reached[0][prompt] = 1.0;
  Enumeration coins;
  for (size_t done = 0; done < static_cast<size_t>(length); ++done) {
    for (const Law::value_type& way : reached[done]) {
      const Tokens& context = way.first;
      const double probability = way.second;
      coins.for_each([&] {
        Tokens longer = context;
        const Tokens emitted = step(context, coins);
        COPPICE_CHECK(!emitted.empty());
        const size_t kept = std::min(emitted.size(), static_cast<size_t>(length) - done);
        longer.insert(longer.end(), emitted.begin(),
                      emitted.begin() + static_cast<ptrdiff_t>(kept));
        reached[done + kept][longer] += probability * coins.probability();
        if (runs != nullptr) ++*runs;
      });
    }
  }
  return reached.back();
}

double largest_difference(const Law& a, const Law& b) {
  double largest = 0.0;
  const auto compare = [&largest](const Law& from, const Law& to) {
    for (const auto& [tokens, probability] : from) {
      const auto other = to.find(tokens);
      const double there = other == to.end() ? 0.0 : other->second;
      largest = std::max(largest, std::abs(probability - there));
    }
  };
  compare(a, b);
  compare(b, a);
  return largest;
}

}  // namespace coppice
