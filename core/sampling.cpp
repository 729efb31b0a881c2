// See sampling.h.
#include "core/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/vocabulary.h"
#include "kernels/shared/gumbel.h"
#include "kernels/shared/walk.h"
#include "kernels/shared/warp.h"

namespace coppice {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void require(bool condition, std::string_view name, std::string_view range, double value) {
  if (!condition) throw Error("{} is {}; it must be {}", name, value, range);
}

/// Why a row has no most probable token.
[[noreturn]] void refuse(std::span<const float> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) throw Failure("the logits hold a NaN, at token {}", i);
    if (row[i] == -kForbidden) throw Failure("the logits hold +infinity, at token {}", i);
  }
  throw Failure("no token is left to draw: every one is masked or has logit -infinity");
}

/// Lowest id of the largest logit, which is finite.
int32_t checked_argmax(std::span<const float> row) {
  const int32_t best = cpu::argmax(row);
  if (best < 0 || !std::isfinite(row[static_cast<size_t>(best)])) refuse(row);
  return best;
}

}  // namespace

void validate(const SamplingParams& params, int vocabulary) {
  const auto finite = [](float x) { return std::isfinite(x); };
  require(finite(params.temperature) && params.temperature >= 0.0f, "temperature",
          "a finite number, 0 (greedy) or larger", params.temperature);
  require(params.top_k >= 0, "top_k", "0 (off) or larger", params.top_k);
  require(params.top_p >= 0.0f && params.top_p <= 1.0f, "top_p", "in 0..1", params.top_p);
  require(params.min_p >= 0.0f && params.min_p <= 1.0f, "min_p", "in 0..1", params.min_p);
  require(finite(params.repetition_penalty) && params.repetition_penalty > 0.0f,
          "repetition_penalty", "a finite number above 0", params.repetition_penalty);
  require(finite(params.presence_penalty), "presence_penalty", "a finite number",
          params.presence_penalty);
  require(finite(params.frequency_penalty), "frequency_penalty", "a finite number",
          params.frequency_penalty);
  require(params.penalty_window >= 0, "penalty_window", "0 or larger", params.penalty_window);
  std::vector<int32_t> biased;
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= vocabulary) {
      throw Error("logit_bias names token {}; tokens are 0..{}", token, vocabulary - 1);
    }
    require(finite(bias) || bias == kForbidden, "logit_bias", "a finite number or -infinity", bias);
    biased.push_back(token);
  }
  std::sort(biased.begin(), biased.end());
  if (const auto twice = std::adjacent_find(biased.begin(), biased.end()); twice != biased.end()) {
    throw Error("logit_bias names token {} twice; give it one value", *twice);
  }
}

RawLogProbabilities raw_log_probabilities(std::span<const float> logits, int32_t token,
                                          int alternatives) {
  COPPICE_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size() && alternatives >= 0);
  const float max = logits[static_cast<size_t>(checked_argmax(logits))];
  std::vector<double> weight(logits.size());
  const uint64_t total = cpu::softmax_weights(logits, max, 1.0, weight.data());
  const double log_total = log_positive(static_cast<double>(total) * kWeightUnit);
  const auto log_probability = [&](int32_t id) {
    const double below = static_cast<double>(logits[static_cast<size_t>(id)]) - max;
    return static_cast<float>(below - log_total);
  };

  RawLogProbabilities result{log_probability(token), {}};
  const int count = std::min(alternatives, static_cast<int>(logits.size()));
  if (count == 0) return result;
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::vector<float> values(ids.size());
  cpu::top_k(logits, count, ids.data(), values.data());
  for (const int32_t id : ids) result.most_likely.emplace_back(id, log_probability(id));
  return result;
}

Sampler::Sampler(const SamplingParams& params, int vocabulary, std::span<const int32_t> masked)
    : params_(params), vocabulary_(vocabulary) {
  COPPICE_CHECK(vocabulary > 0);
  validate(params, vocabulary);
  // The one division by the temperature, in double: no float logit overflows by it.
  if (params.temperature > 0.0f) inverse_temperature_ = 1.0 / params.temperature;
  penalises_ = params.penalty_window > 0 &&
               (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                params.frequency_penalty != 0.0f);
  if (params_.top_k >= vocabulary) params_.top_k = 0;
  filters_ = params_.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f;
  for (const auto& [token, add] : params_.logit_bias) bias_.push_back({token, add});
  for (const int32_t token : masked) {
    if (token >= 0 && token < vocabulary) masked_.push_back(token);
  }
}

void Sampler::describe(std::span<const int32_t> history, Judge& op) const {
  op.vocabulary = vocabulary_;
  op.filters = {inverse_temperature_, params_.top_k, params_.top_p, params_.min_p};
  op.penalties = {params_.repetition_penalty, params_.presence_penalty, params_.frequency_penalty};
  op.window = penalises_ ? params_.penalty_window : 0;
  const auto seen = history.last(std::min(history.size(), static_cast<size_t>(op.window)));
  op.history = seen.data();
  op.history_count = static_cast<int>(seen.size());
  op.bias = bias_.data();
  op.biases = static_cast<int>(bias_.size());
  op.masked = masked_.data();
  op.masks = static_cast<int>(masked_.size());
  op.key = noise_key();
}

int32_t Sampler::argmax(std::span<const float> logits, TokenContext context) {
  return checked_argmax(scores(logits, context));
}

int32_t Sampler::coupled(std::span<const float> logits, TokenContext context, int position) {
  const std::span<const float> row = scores(logits, context);
  if (params_.temperature == 0.0f) return checked_argmax(row);
  if (!filters_) {
    const int32_t token = cpu::gumbel_argmax(row, inverse_temperature_, noise_key(), position);
    if (token < 0 || !std::isfinite(row[static_cast<size_t>(token)])) refuse(row);
    return token;
  }
  select(row);
  // The noise of what was filtered out is not used, so the draw is one from the filtered softmax.
  int32_t winner = -1;
  double best = -std::numeric_limits<double>::infinity();
  for (const int32_t token : kept_) {
    const double score = coupled_score(row[static_cast<size_t>(token)], inverse_temperature_,
                                       target_noise(noise_key(), position, token));
    if (score > best || (score == best && token < winner)) {
      best = score;
      winner = token;
    }
  }
  return winner;
}

std::span<const float> Sampler::probabilities(std::span<const float> logits, TokenContext context) {
  const std::span<const float> row = scores(logits, context);
  p_.assign(static_cast<size_t>(vocabulary_), 0.0f);
  if (params_.temperature == 0.0f) {
    p_[static_cast<size_t>(checked_argmax(row))] = 1.0f;
    return p_;
  }
  const double total = static_cast<double>(select(row)) * kWeightUnit;
  for (const int32_t token : kept_) {
    p_[static_cast<size_t>(token)] =
        static_cast<float>(weight_[static_cast<size_t>(token)] / total);
  }
  return p_;
}

void Sampler::rank(std::span<const float> logits, TokenContext context, int count,
                   std::vector<RankedToken>& ranked) {
  COPPICE_CHECK(count > 0);
  const std::span<const float> row = scores(logits, context);
  const bool greedy = params_.temperature == 0.0f;
  const double inverse_temperature = greedy ? 1.0 : inverse_temperature_;
  uint64_t total = 0;
  size_t left = row.size();
  if (filters_ && !greedy) {
    total = select(row);
    left = kept_.size();
  } else {
    const float max = row[static_cast<size_t>(checked_argmax(row))];
    total = cpu::softmax_weights(row, max, inverse_temperature, nullptr);
  }
  // Whatever the filters keep are the largest logits.
  const size_t wanted = std::min(left, static_cast<size_t>(count));
  std::vector<int32_t> ids(wanted);
  std::vector<float> values(wanted);
  cpu::top_k(row, static_cast<int>(wanted), ids.data(), values.data());
  ranked.clear();
  for (size_t i = 0; i < wanted; ++i) {
    const double weight = softmax_weight(values[i], values.front(), inverse_temperature);
    if (!(weight > 0.0)) break;
    const double probability = weight / (static_cast<double>(total) * kWeightUnit);
    ranked.push_back({ids[i], static_cast<float>(std::min(probability, 1.0))});
  }
}

void Sampler::rank_coupled(std::span<const float> logits, TokenContext context, int position,
                           int count, std::vector<RankedToken>& ranked) {
  if (params_.temperature == 0.0f) return rank(logits, context, count, ranked);
  constexpr int kPool = 64;  // runners-up are looked for among so many
  const int32_t winner = coupled(logits, context, position);
  rank(logits, context, std::max(kPool, count + 1), ranked);
  const std::span<const float> row = scores(logits, context);
  std::vector<std::pair<double, int32_t>> noisy;
  const auto score = [&](int32_t token) {
    return coupled_score(row[static_cast<size_t>(token)], inverse_temperature_,
                         target_noise(noise_key(), position, token));
  };
  for (const RankedToken& likely : ranked) {
    if (likely.token != winner) noisy.emplace_back(score(likely.token), likely.token);
  }
  const size_t runners = std::min(noisy.size(), static_cast<size_t>(count));
  std::partial_sort(noisy.begin(), noisy.begin() + static_cast<ptrdiff_t>(runners), noisy.end(),
                    [](const auto& a, const auto& b) {
                      return a.first > b.first || (a.first == b.first && a.second < b.second);
                    });
  noisy.resize(runners);
  noisy.insert(noisy.begin(), {score(winner), winner});
  double total = 0.0;
  for (const auto& [value, token] : noisy) total += std::exp(value - noisy.front().first);
  noisy.resize(std::min(noisy.size(), static_cast<size_t>(count)));
  ranked.clear();
  for (const auto& [value, token] : noisy) {
    ranked.push_back({token, static_cast<float>(std::exp(value - noisy.front().first) / total)});
  }
}

int32_t Sampler::draw_draft(std::span<const float> q, int root_position, int depth,
                            int node) const {
  double total = 0.0;
  for (const float weight : q) total += static_cast<double>(weight);
  const Philox4x32 word = noise(noise_key(), root_position, depth, Purpose::draft,
                                first_draft_ + static_cast<uint32_t>(node));
  return inverse_cdf(q, static_cast<int>(q.size()), total, to_uniform(word));
}

// A view of `logits` where nothing changes.
std::span<const float> Sampler::scores(std::span<const float> logits, TokenContext context) {
  COPPICE_CHECK(logits.size() >= static_cast<size_t>(vocabulary_));
  const std::span<const float> real = logits.first(static_cast<size_t>(vocabulary_));
  if (!penalises_ && bias_.empty() && masked_.empty()) return real;
  row_.assign(real.begin(), real.end());
  if (penalises_) apply_penalties(context);
  for (const JudgeBias& bias : bias_) row_[static_cast<size_t>(bias.token)] += bias.add;
  for (const int32_t token : masked_) row_[static_cast<size_t>(token)] = kForbidden;
  return row_;
}

/// penalise() of warp.h over the last `penalty_window` tokens of history and path, in
/// O(window log window).
void Sampler::apply_penalties(TokenContext context) {
  const size_t window = static_cast<size_t>(params_.penalty_window);
  const size_t from_path = std::min(window, context.path.size());
  const size_t from_history = std::min(window - from_path, context.history.size());
  const auto last_of = context.history.last(from_history);
  window_.assign(last_of.begin(), last_of.end());
  const auto path = context.path.last(from_path);
  window_.insert(window_.end(), path.begin(), path.end());
  std::sort(window_.begin(), window_.end());
  const Penalties penalties{params_.repetition_penalty, params_.presence_penalty,
                            params_.frequency_penalty};
  for (auto run = window_.begin(); run != window_.end();) {
    const auto end = std::upper_bound(run, window_.end(), *run);
    if (*run >= 0 && *run < vocabulary_) {
      float& logit = row_[static_cast<size_t>(*run)];
      logit = penalised(logit, static_cast<int>(end - run), penalties);
    }
    run = end;
  }
}

/// Fills kept_ with the tokens that every filter keeps and weight_ at these; returns the sum of
/// their weights in units. The same tokens and weights as warp_weights(), without sorting the row.
uint64_t Sampler::select(std::span<const float> row) {
  const float max = row[static_cast<size_t>(checked_argmax(row))];
  weight_.resize(static_cast<size_t>(vocabulary_));
  const auto units = [this](int32_t token) {
    return weight_units(weight_[static_cast<size_t>(token)]);
  };
  uint64_t total = 0;
  if (params_.top_k > 0) {
    kept_.resize(static_cast<size_t>(params_.top_k));
    value_.resize(kept_.size());
    cpu::top_k(row, params_.top_k, kept_.data(), value_.data());
    for (size_t i = 0; i < kept_.size(); ++i) {
      weight_[static_cast<size_t>(kept_[i])] = softmax_weight(value_[i], max, inverse_temperature_);
      total += units(kept_[i]);
    }
  } else {
    total = cpu::softmax_weights(row, max, inverse_temperature_, weight_.data());
    // Tokens of at most this many units make up less than 1 - top_p all together, so that none of
    // them is in the nucleus.
    const double light = 0.99 * (1.0 - static_cast<double>(params_.top_p)) *
                         static_cast<double>(total) / vocabulary_;
    kept_.clear();
    for (int32_t i = 0; i < vocabulary_; ++i) {
      if (params_.top_p == 1.0f || static_cast<double>(units(i)) > light) kept_.push_back(i);
    }
  }
  if (params_.top_p < 1.0f) cut_nucleus(row, total);

  const double least = params_.min_p;
  std::erase_if(kept_, [&](int32_t token) {
    const double weight = weight_[static_cast<size_t>(token)];
    return weight == 0.0 || weight < least;
  });
  total = 0;
  for (const int32_t token : kept_) total += units(token);
  return total;
}

/// Keeps the shortest run of candidates, in their order, that holds top_p of `total` units. They
/// are put in order only as far as the run reaches.
void Sampler::cut_nucleus(std::span<const float> row, uint64_t total) {
  const auto before_other = [&](int32_t a, int32_t b) { return comes_before(row.data(), a, b); };
  uint64_t before = 0;
  size_t sorted = 0;
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (i == sorted) {
      const size_t end = std::min(kept_.size(), 4 * sorted + 64);
      const auto first = kept_.begin() + static_cast<ptrdiff_t>(sorted);
      const auto last = kept_.begin() + static_cast<ptrdiff_t>(end);
      if (last != kept_.end()) std::nth_element(first, last, kept_.end(), before_other);
      std::sort(first, last, before_other);
      sorted = end;
    }
    if (!in_nucleus(before, total, params_.top_p)) {
      kept_.resize(i);
      return;
    }
    before += weight_units(weight_[static_cast<size_t>(kept_[i])]);
  }
}

}  // namespace coppice
