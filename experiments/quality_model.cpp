// See quality_model.h.
#include "experiments/quality_model.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "experiments/statistics.h"
#include "kernels/base/dtype.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

/// Of a file of logits; what follows is the tokens, then rows of halves.
struct Header {
  char magic[8] = {'c', 'o', 'p', 'l', 'o', 'g', 'i', '1'};
  uint32_t chunk = 0, vocabulary = 0;
  uint64_t tokens = 0;
};

double log_of_sum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum);
}

/// KL divergence of `ours` from `reference`, both logits.
double divergence(std::span<const float> reference, double reference_log_sum,
                  std::span<const float> ours, double our_log_sum) {
  double sum = 0.0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - reference_log_sum;
    const double p = std::exp(log_p);
    if (p > 0.0) sum += p * (log_p - (ours[i] - our_log_sum));
  }
  return std::max(sum, 0.0);
}

size_t argmax(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

template <class T>
void write(std::ofstream& out, const T* values, size_t count) {
  out.write(reinterpret_cast<const char*>(values), static_cast<std::streamsize>(count * sizeof(T)));
}

template <class T>
bool read(std::ifstream& in, T* values, size_t count) {
  const auto bytes = static_cast<std::streamsize>(count * sizeof(T));
  return in.read(reinterpret_cast<char*>(values), bytes).gcount() == bytes;
}

}  // namespace

DistributionQuality compare_distributions(TextScorer& ours, std::span<const int32_t> tokens,
                                          const LogitSource& reference) {
  DistributionQuality out;
  std::vector<double> divergences;
  int agree = 0;
  for (auto logits = ours.next(); !logits.empty(); logits = ours.next()) {
    const std::span<const float> base = reference();
    if (base.size() != logits.size()) {
      throw Error(
          "the reference has {} logits where the model has {}; compare models of one "
          "vocabulary",
          base.size(), logits.size());
    }
    const double our_sum = log_of_sum(logits), base_sum = log_of_sum(base);
    const auto token = static_cast<size_t>(tokens[ours.index()]);
    out.nll += our_sum - logits[token];
    out.reference_nll += base_sum - base[token];
    divergences.push_back(divergence(base, base_sum, logits, our_sum));
    agree += argmax(base) == argmax(logits);
    ++out.scored;
  }
  const double n = out.scored;
  out.nll /= n;
  out.reference_nll /= n;
  out.top1_agreement = agree / n;
  for (const double kl : divergences) out.kl += kl / n;
  out.kl_p99 = percentile(divergences, 0.99).value_or(0.0);
  out.kl_most = percentile(divergences, 1.0).value_or(0.0);
  return out;
}

void save_logits(const std::filesystem::path& path, TextScorer& scorer,
                 std::span<const int32_t> tokens, int chunk) {
  std::ofstream out(path, std::ios::binary);
  std::vector<uint16_t> halves;
  for (auto logits = scorer.next(); !logits.empty() && out; logits = scorer.next()) {
    if (halves.empty()) {
      const Header header{.chunk = static_cast<uint32_t>(chunk),
                          .vocabulary = static_cast<uint32_t>(logits.size()),
                          .tokens = tokens.size()};
      write(out, &header, 1);
      write(out, tokens.data(), tokens.size());
      halves.resize(logits.size());
    }
    // Below the largest, so that the probable ones keep their digits.
    const float most = *std::max_element(logits.begin(), logits.end());
    std::transform(logits.begin(), logits.end(), halves.begin(),
                   [&](float logit) { return float_to_half(logit - most); });
    write(out, halves.data(), halves.size());
  }
  out.close();
  if (!out) throw Failure("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

SavedLogits::SavedLogits(const std::filesystem::path& path, std::span<const int32_t> tokens,
                         int chunk)
    : path_(path), in_(path, std::ios::binary) {
  if (!in_) throw Error("{}: cannot be read; give what --save wrote", path.string());
  Header header;
  const bool known = read(in_, &header, 1) &&
                     std::memcmp(header.magic, Header{}.magic, sizeof header.magic) == 0 &&
                     header.vocabulary > 0 && header.vocabulary <= (1u << 24);
  if (!known) throw Error("{}: holds no logits; give what --save wrote", path.string());
  std::vector<int32_t> saved(tokens.size());
  const bool same = header.tokens == tokens.size() &&
                    header.chunk == static_cast<uint32_t>(chunk) &&
                    read(in_, saved.data(), saved.size()) &&
                    std::equal(saved.begin(), saved.end(), tokens.begin());
  if (!same) {
    throw Error("{}: is of another text, other tokens or another chunk; give the same ones",
                path.string());
  }
  halves_.resize(header.vocabulary);
  logits_.resize(header.vocabulary);
}

std::span<const float> SavedLogits::next() {
  if (!read(in_, halves_.data(), halves_.size())) {
    throw Error("{}: ends too early; write it again with --save", path_.string());
  }
  std::transform(halves_.begin(), halves_.end(), logits_.begin(), half_to_float);
  return logits_;
}

}  // namespace coppice
