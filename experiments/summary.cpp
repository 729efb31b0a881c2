// See summary.h.
#include "experiments/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

std::optional<double> quotient(double over, double under) {
  if (!(under > 0.0)) return std::nullopt;
  return over / under;
}

struct Pair {
  const PromptRow* baseline;
  const PromptRow* method;
};

/// Sums one arm's rows.
ArmSummary sum_rows(std::span<const PromptRow* const> rows, const ArmInfo& arm) {
  ArmSummary out;
  out.arm = arm;
  out.prompts = static_cast<int>(rows.size());
  double decode_ms = 0, tokens = 0, forward_rows = 0, joules = 0, all_tokens = 0;
  bool measured_energy = !rows.empty();
  PhaseTimes phase;
  std::vector<int64_t> reached, accepted;
  std::vector<double> ttft, tpot;
  const auto add_counts = [](std::vector<int64_t>& sum, const std::vector<int64_t>& counts) {
    if (counts.size() > sum.size()) sum.resize(counts.size());
    for (size_t i = 0; i < counts.size(); ++i) sum[i] += counts[i];
  };
  for (const PromptRow* row : rows) {
    out.steps += row->steps;
    out.steps_without_draft += row->steps_without_draft;
    out.drafted += row->drafted;
    out.accepted += row->accepted;
    out.discarded += row->discarded;
    decode_ms += row->decode_ms;
    tokens += row->decode_tokens;
    forward_rows += static_cast<double>(row->rows);
    phase.draft += row->phase.draft;
    phase.target += row->phase.target;
    phase.judge += row->phase.judge;
    phase.other += row->phase.other;
    add_counts(reached, row->reached_at);
    add_counts(accepted, row->accepted_at);
    joules += row->joules.value_or(0.0);
    measured_energy = measured_energy && row->joules;
    all_tokens += static_cast<double>(row->ids.size());
    ttft.push_back(row->ttft_ms);
    if (row->decode_tokens > 0) tpot.push_back(row->latency_ms / row->decode_tokens);
  }
  const auto steps = static_cast<double>(out.steps);
  out.decode_tokens_per_s = quotient(1000.0 * tokens, decode_ms);
  out.tokens_per_step = quotient(tokens, steps);
  out.rows_per_step = quotient(forward_rows, steps);
  out.step_ms = quotient(decode_ms, steps);
  if (measured_energy) out.joules_per_token = quotient(joules, all_tokens);
  if (out.steps > 0) {
    out.phase_ms = {phase.draft / steps, phase.target / steps, phase.judge / steps,
                    phase.other / steps};
  }
  accepted.resize(reached.size());
  for (size_t i = 0; i < reached.size(); ++i) {
    out.acceptance_by_position.push_back(
        quotient(static_cast<double>(accepted[i]), static_cast<double>(reached[i])));
  }
  out.ttft_ms = percentiles(ttft);
  out.tpot_ms = percentiles(tpot);
  return out;
}

/// Decode times of both arms for the tokens that both emitted.
std::optional<Ratio> speedup_of(std::span<const Pair> pairs) {
  std::vector<double> baseline_ms, method_ms;
  for (const Pair& pair : pairs) {
    const int common = std::min(pair.baseline->decode_tokens, pair.method->decode_tokens);
    if (common == 0) continue;
    const auto scaled = [&](const PromptRow& row) {
      return row.decode_ms * common / row.decode_tokens;
    };
    baseline_ms.push_back(scaled(*pair.baseline));
    method_ms.push_back(scaled(*pair.method));
  }
  return ratio_of_sums(baseline_ms, method_ms);
}

std::vector<const PromptRow*> side(std::span<const Pair> pairs, const PromptRow* Pair::*which) {
  std::vector<const PromptRow*> out;
  for (const Pair& pair : pairs) out.push_back(pair.*which);
  return out;
}

CategorySummary summarise_category(std::span<const Pair> pairs) {
  const ArmSummary sums = sum_rows(side(pairs, &Pair::method), {});
  return {sums.prompts, speedup_of(pairs), sums.tokens_per_step};
}

MethodSummary summarise_method(std::span<const Pair> pairs, const ArmInfo& arm) {
  MethodSummary out;
  static_cast<ArmSummary&>(out) = sum_rows(side(pairs, &Pair::method), arm);
  out.speedup = speedup_of(pairs);
  const ArmSummary baseline = sum_rows(side(pairs, &Pair::baseline), {});
  if (out.step_ms && baseline.step_ms) {
    out.step_cost_ratio = quotient(*out.step_ms, *baseline.step_ms);
  }
  double expected_ms = 0, expected_plain_ms = 0, proposed = 0;
  for (const Pair& pair : pairs) {
    expected_ms += pair.method->expected_ms;
    expected_plain_ms += pair.method->expected_plain_ms;
    proposed += static_cast<double>(pair.method->proposed);
  }
  out.predicted_speedup = quotient(expected_plain_ms, expected_ms);
  if (out.predicted_speedup) {
    out.proposed_per_step = quotient(proposed, static_cast<double>(out.steps));
    std::vector<Hindsight> answers;
    for (const Pair& pair : pairs) answers.push_back({pair.method->matches, pair.method->pass_ms});
    out.clairvoyant_speedup = clairvoyant_speedup(answers);
  }
  std::map<std::string, std::vector<Pair>> by_category;
  for (const Pair& pair : pairs) {
    by_category[pair.method->category].push_back(pair);
    const std::vector<int32_t>&want = pair.baseline->ids, &got = pair.method->ids;
    const auto differ = std::mismatch(want.begin(), want.end(), got.begin(), got.end());
    if (differ.first == want.end() && differ.second == got.end()) continue;
    out.divergences.push_back({pair.method->prompt, static_cast<int>(differ.first - want.begin())});
  }
  out.identical_rate = quotient(static_cast<double>(pairs.size() - out.divergences.size()),
                                static_cast<double>(pairs.size()));
  for (const auto& entry : by_category) {
    out.by_category[entry.first] = summarise_category(entry.second);
  }
  return out;
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}
ordered_json percentiles_to_json(const Percentiles& p) {
  return {{"p50", or_null(p.p50)}, {"p90", or_null(p.p90)}, {"p99", or_null(p.p99)}};
}
ordered_json speedup_to_json(const std::optional<Ratio>& ratio) {
  ordered_json interval = nullptr;
  if (ratio && ratio->ci95) interval = {ratio->ci95->low, ratio->ci95->high};
  return {{"value", ratio ? ordered_json(ratio->value) : ordered_json(nullptr)},
          {"ci95", std::move(interval)}};
}

ordered_json method_to_json(const MethodSummary& method) {
  ordered_json positions = ordered_json::array(), categories = ordered_json::object();
  for (const auto& share : method.acceptance_by_position) positions.push_back(or_null(share));
  for (const auto& entry : method.by_category) {
    categories[entry.first] = {{"prompts", entry.second.prompts},
                               {"speedup", speedup_to_json(entry.second.speedup)},
                               {"tokens_per_step", or_null(entry.second.tokens_per_step)}};
  }
  ordered_json phases = {
      {"draft", nullptr}, {"target", nullptr}, {"judge", nullptr}, {"other", nullptr}};
  if (const auto& ms = method.phase_ms) {
    phases = {
        {"draft", ms->draft}, {"target", ms->target}, {"judge", ms->judge}, {"other", ms->other}};
  }
  ordered_json out = {{"name", method.arm.name},
                      {"rule", method.arm.rule},
                      {"lossless", method.arm.lossless},
                      {"speedup", speedup_to_json(method.speedup)},
                      {"tokens_per_step", or_null(method.tokens_per_step)},
                      {"acceptance_by_position", std::move(positions)},
                      {"drafted", method.drafted},
                      {"accepted", method.accepted},
                      {"proposed_per_step", or_null(method.proposed_per_step)},
                      {"predicted_speedup", or_null(method.predicted_speedup)},
                      {"clairvoyant_speedup", or_null(method.clairvoyant_speedup)},
                      {"rows_per_step", or_null(method.rows_per_step)},
                      {"step_cost_ratio", or_null(method.step_cost_ratio)},
                      {"phase_ms", std::move(phases)},
                      {"identical_rate", or_null(method.identical_rate)},
                      {"decode_tokens_per_s", or_null(method.decode_tokens_per_s)},
                      {"by_category", std::move(categories)}};
  if (!method.arm.valid) out["valid"] = false;
  if (method.joules_per_token) out["joules_per_token"] = *method.joules_per_token;
  return out;
}

}  // namespace

// Dinkelbach 1967: with the ratio so far as the price of time every step chooses for itself, until
// the ratio stays.
std::optional<double> clairvoyant_speedup(std::span<const Hindsight> answers) {
  const bool any = std::any_of(answers.begin(), answers.end(),
                               [](const Hindsight& answer) { return !answer.matches.empty(); });
  if (!any) return std::nullopt;
  double speedup = 1.0;
  for (int round = 0; round < 20; ++round) {
    double plain_ms = 0, chosen_ms = 0;  // of the same tokens
    for (const Hindsight& answer : answers) {
      const std::span<const double> pass = answer.pass_ms;
      for (const int match : answer.matches) {
        int best = 0;
        const auto worth = [&](int kept) {
          return (1 + kept) * pass[0] - speedup * pass[static_cast<size_t>(kept)];
        };
        for (int kept = 1; kept <= match; ++kept) {
          if (worth(kept) > worth(best)) best = kept;
        }
        plain_ms += (1 + best) * pass[0];
        chosen_ms += pass[static_cast<size_t>(best)];
      }
    }
    const double next = plain_ms / chosen_ms;
    if (next - speedup < 1e-9) break;
    speedup = next;
  }
  return speedup;
}

Summary summarise(std::span<const PromptRow> rows, std::span<const ArmInfo> arms) {
  COPPICE_CHECK(!arms.empty());
  Summary out;
  std::map<std::string, std::map<std::string, const PromptRow*>> good;  // arm -> prompt -> row
  for (const PromptRow& row : rows) {
    if (row.error.empty()) {
      good[row.arm][row.prompt] = &row;
    } else {
      out.failures.push_back({row.prompt, row.arm, row.error});
    }
  }
  const auto& baseline = good[arms[0].name];
  std::vector<const PromptRow*> baseline_rows;
  for (const auto& entry : baseline) baseline_rows.push_back(entry.second);
  out.baseline = sum_rows(baseline_rows, arms[0]);
  for (const ArmInfo& arm : arms.subspan(1)) {
    std::vector<Pair> pairs;
    for (const auto& entry : good[arm.name]) {
      const auto same = baseline.find(entry.first);
      if (same != baseline.end()) pairs.push_back({same->second, entry.second});
    }
    out.methods.push_back(summarise_method(pairs, arm));
  }
  return out;
}

ordered_json summary_to_json(const Summary& summary, const ordered_json& manifest) {
  ordered_json methods = ordered_json::array();
  for (const MethodSummary& method : summary.methods) methods.push_back(method_to_json(method));
  ordered_json out = {{"schema", 1},
                      {"model", manifest.at("model")},
                      {"machine", manifest.at("machine")},
                      {"backend", manifest.at("backend")},
                      {"baseline",
                       {{"decode_tokens_per_s", or_null(summary.baseline.decode_tokens_per_s)},
                        {"ttft_ms", percentiles_to_json(summary.baseline.ttft_ms)},
                        {"tpot_ms", percentiles_to_json(summary.baseline.tpot_ms)}}},
                      {"methods", std::move(methods)}};
  if (const auto& joules = summary.baseline.joules_per_token) {
    out["baseline"]["joules_per_token"] = *joules;
  }
  return out;
}

}  // namespace coppice
