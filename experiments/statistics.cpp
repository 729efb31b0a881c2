// See statistics.h.
#include "experiments/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/error.h"
#include "kernels/shared/philox.h"

namespace coppice {
namespace {

// Counter word 3: keeps this folder's noise apart from that of decoding (shared/noise.h).
constexpr uint32_t kBootstrap = 0xB0075u;
constexpr uint32_t kShuffle = 0x5817Fu;

/// Uniform in 0..n-1; the bias is below n / 2^32.
size_t below(uint32_t word, size_t n) {
  return static_cast<size_t>((uint64_t{word} * n) >> 32);
}

double sum(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// The middle 95 % of `statistic` over `resamples` draws of n indices with replacement; NaN is left
/// out. Empty for fewer than two.
template <class Statistic>
std::optional<Interval> bootstrap(size_t n, int resamples, Statistic&& statistic) {
  if (n < 2) return std::nullopt;
  std::vector<double> found;
  found.reserve(static_cast<size_t>(resamples));
  std::vector<size_t> drawn(n);
  for (int resample = 0; resample < resamples; ++resample) {
    Philox4x32 noise{};
    for (size_t draw = 0; draw < n; ++draw) {
      if (draw % 4 == 0) {
        noise = philox4x32(
            {{static_cast<uint32_t>(draw / 4), static_cast<uint32_t>(resample), 0, kBootstrap}}, 0,
            0);
      }
      drawn[draw] = below(noise.word[draw % 4], n);
    }
    const double value = statistic(drawn);
    if (!std::isnan(value)) found.push_back(value);
  }
  if (found.empty()) return std::nullopt;
  return Interval{*percentile(found, 0.025), *percentile(found, 0.975)};
}

std::optional<double> effect_of(std::span<const double> differences) {
  const auto n = static_cast<double>(differences.size());
  if (n < 2) return std::nullopt;
  const double mean = sum(differences) / n;
  double squares = 0.0;
  for (const double difference : differences) squares += (difference - mean) * (difference - mean);
  const double deviation = std::sqrt(squares / (n - 1.0));
  if (!(deviation > 0.0)) return std::nullopt;
  return mean / deviation;
}

}  // namespace

std::optional<double> percentile(std::span<const double> values, double p) {
  COPPICE_CHECK(p >= 0.0 && p <= 1.0);
  if (values.empty()) return std::nullopt;
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const double rank = static_cast<double>(sorted.size() - 1) * p;
  const auto below_rank = static_cast<size_t>(rank);
  const size_t above_rank = std::min(below_rank + 1, sorted.size() - 1);
  const double weight = rank - static_cast<double>(below_rank);
  return sorted[below_rank] + weight * (sorted[above_rank] - sorted[below_rank]);
}

Percentiles percentiles(std::span<const double> values) {
  return {percentile(values, 0.50), percentile(values, 0.90), percentile(values, 0.99)};
}

Middle middle_of(std::span<const double> values) {
  COPPICE_CHECK(!values.empty());
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  // The k-th smallest and k-th largest enclose the median but for 2 P(Binomial(n, 1/2) < k).
  const size_t n = sorted.size();
  double at_most = 0.0, exactly = std::pow(0.5, static_cast<double>(n));
  size_t k = 0;
  while (k < n / 2 && 2.0 * (at_most + exactly) <= 0.05) {
    at_most += exactly;
    exactly *= static_cast<double>(n - k) / static_cast<double>(k + 1);
    ++k;
  }
  const size_t outermost = k > 0 ? k - 1 : 0;
  return {*percentile(sorted, 0.5), {sorted[outermost], sorted[n - 1 - outermost]}};
}

std::optional<Ratio> ratio_of_sums(std::span<const double> numerator,
                                   std::span<const double> denominator, int resamples) {
  COPPICE_CHECK(numerator.size() == denominator.size());
  const double below_line = sum(denominator);
  if (!(below_line > 0.0)) return std::nullopt;
  Ratio out{sum(numerator) / below_line, std::nullopt};
  out.ci95 = bootstrap(numerator.size(), resamples, [&](std::span<const size_t> pairs) {
    double over = 0.0, under = 0.0;
    for (const size_t pair : pairs) {
      over += numerator[pair];
      under += denominator[pair];
    }
    return under > 0.0 ? over / under : std::nan("");
  });
  return out;
}

std::optional<PairedComparison> compare_pairs(std::span<const double> a,
                                              std::span<const double> b) {
  const auto ratio = ratio_of_sums(a, b);
  if (!ratio) return std::nullopt;
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) logs.push_back(std::log(a[i] / b[i]));
  return PairedComparison{*ratio, effect_of(logs)};
}

std::optional<PairedComparison> compare_ratios(std::span<const double> a, std::span<const double> b,
                                               std::span<const double> c,
                                               std::span<const double> d) {
  COPPICE_CHECK(a.size() == b.size() && b.size() == c.size() && c.size() == d.size());
  if (a.empty()) return std::nullopt;
  PairedComparison out{{sum(a) / sum(b) / (sum(c) / sum(d)), std::nullopt}, std::nullopt};
  out.ratio.ci95 = bootstrap(a.size(), kResamples, [&](std::span<const size_t> pairs) {
    double sums[4] = {};
    for (const size_t pair : pairs) {
      sums[0] += a[pair];
      sums[1] += b[pair];
      sums[2] += c[pair];
      sums[3] += d[pair];
    }
    return sums[0] / sums[1] / (sums[2] / sums[3]);
  });
  std::vector<double> logs;
  for (size_t i = 0; i < a.size(); ++i) logs.push_back(std::log(a[i] / b[i] / (c[i] / d[i])));
  out.effect = effect_of(logs);
  return out;
}

std::optional<double> drift_of(std::span<const double> values, std::span<const double> sizes) {
  COPPICE_CHECK(values.size() == sizes.size());
  const size_t n = values.size();
  if (n < 9 || *std::min_element(values.begin(), values.end()) <= 0.0) return std::nullopt;
  const double mean_value = std::accumulate(values.begin(), values.end(), 0.0) / n;
  const double mean_size = std::accumulate(sizes.begin(), sizes.end(), 0.0) / n;
  double both = 0.0, size_square = 0.0;
  for (size_t i = 0; i < n; ++i) {
    both += (values[i] - mean_value) * (sizes[i] - mean_size);
    size_square += (sizes[i] - mean_size) * (sizes[i] - mean_size);
  }
  const double slope = size_square > 0.0 ? both / size_square : 0.0;

  std::vector<double> level(n), medians, deviations;
  for (size_t i = 0; i < n; ++i) level[i] = values[i] - slope * (sizes[i] - mean_size);
  for (size_t third = 0; third < 3; ++third) {
    const std::span<const double> part(
        level.begin() + static_cast<std::ptrdiff_t>(third * n / 3),
        level.begin() + static_cast<std::ptrdiff_t>((third + 1) * n / 3));
    medians.push_back(*percentile(part, 0.5));
    for (const double value : part) deviations.push_back(std::abs(value - medians.back()));
  }
  // For normal scatter: a deviation of 1.4826 MAD, a median's of 1.2533 / sqrt(n) of it, and a
  // range of three such of 1.6926.
  const double scatter = 1.4826 * *percentile(deviations, 0.5);
  const double by_chance = 1.6926 * 1.2533 * scatter / std::sqrt(static_cast<double>(n) / 3.0);
  const auto [low, high] = std::minmax_element(medians.begin(), medians.end());
  if (*low <= 0.0) return std::nullopt;
  return std::max(*high - *low - by_chance, 0.0) / *low;
}

std::vector<int> shuffled(int n, uint64_t seed, uint32_t lane) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (size_t left = order.size(); left > 1; --left) {
    const Philox4x32 noise =
        philox4x32({{static_cast<uint32_t>(left), lane, 0, kShuffle}}, static_cast<uint32_t>(seed),
                   static_cast<uint32_t>(seed >> 32));
    std::swap(order[left - 1], order[below(noise.word[0], left)]);
  }
  return order;
}

}  // namespace coppice
