// Percentiles, and how sure a speedup is: the paired bootstrap over prompts. Source: Efron and
// Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile interval). Noise is
// addressed, so a report made twice from one run has the same digits.
//
//   std::optional<Ratio> speedup = ratio_of_sums(baseline_ms, method_ms);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace coppice {

/// The value at rank (n - 1) p of the sorted values, from 0, linear between neighbours (Hyndman and
/// Fan 1996, type 7). 0 <= p <= 1. Empty for no values.
std::optional<double> percentile(std::span<const double> values, double p);

struct Percentiles {
  std::optional<double> p50, p90, p99;
};
Percentiles percentiles(std::span<const double> values);

struct Interval {
  double low, high;
};
struct Ratio {
  double value;
  std::optional<Interval> ci95;  // empty for fewer than two pairs: nothing to resample
};

/// The middle of repeated measurements, and between which of them the true median lies: 95 % or
/// more, whatever their distribution (order statistics; binomial). For fewer than six values, which
/// allow no such interval, their whole range. At least one value.
struct Middle {
  double median;
  Interval ci95;
};
Middle middle_of(std::span<const double> values);

inline constexpr int kResamples = 10'000;

/// sum(numerator) / sum(denominator) over pairs i, none negative, and the interval between
/// the 2.5th and 97.5th percentile of the same ratio over `resamples` draws of n pairs with
/// replacement. A draw whose denominators sum to zero is left out. Empty when the whole ratio is
/// undefined.
std::optional<Ratio> ratio_of_sums(std::span<const double> numerator,
                                   std::span<const double> denominator, int resamples = kResamples);

/// Two arms or runs over the same prompts.
struct PairedComparison {
  Ratio ratio;
  /// Mean of the pairs' log ratios over their standard deviation (Cohen's d for paired
  /// differences); empty where they do not vary.
  std::optional<double> effect;
  /// The interval leaves 1 out; where there is none nothing can be said.
  bool differs() const { return ratio.ci95 && (ratio.ci95->low > 1.0 || ratio.ci95->high < 1.0); }
};
/// sum(a) / sum(b). All values positive; empty for no pairs.
std::optional<PairedComparison> compare_pairs(std::span<const double> a, std::span<const double> b);
/// (sum(a) / sum(b)) / (sum(c) / sum(d)): whether a speedup differs between two runs whose machine
/// may have.
std::optional<PairedComparison> compare_ratios(std::span<const double> a, std::span<const double> b,
                                               std::span<const double> c,
                                               std::span<const double> d);

/// How far a repeated measurement moved while it was repeated: the largest relative difference
/// between the medians of the first, middle and last third of `values`, less what their scatter
/// alone would show, and not less than 0. `sizes` are what a value may depend on besides (a line
/// through both is taken off). Empty for fewer than nine values, or values that are not positive.
std::optional<double> drift_of(std::span<const double> values, std::span<const double> sizes);
/// A table whose baseline moved further says so.
inline constexpr double kMostDrift = 0.05;

/// A permutation of 0..n-1 that depends on the seed and the lane alone (Fisher-Yates).
std::vector<int> shuffled(int n, uint64_t seed, uint32_t lane);

}  // namespace coppice
