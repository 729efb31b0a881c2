// See report.h.
#include "experiments/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostPositions = 10;  // columns of the acceptance table
constexpr size_t kMostListed = 20;     // divergences and failures printed in full

constexpr std::string_view kDefinitions =
    R"(**Speedup** is the sum of the baseline's decode times over the sum of the method's, over the same prompts and the same number of tokens: where one answer is longer, its time counts in proportion. The baseline was measured in the same process, interleaved with the methods prompt by prompt. The interval in brackets holds 95 % of 10,000 resamples of the prompts (paired bootstrap, percentiles).

**Decoding** is what follows a prompt's first token. **TTFT** is the time from a request's first pass to its first token, **TPOT** the time from the first token to the last over the tokens that followed the first. Percentiles are over prompts, linear between neighbours.

**Tokens per step** counts every token emitted in decoding, the one that follows the accepted draft included, over the target's passes. **Acceptance at position i** is conditional: of the steps whose walk came to judge draft position i, the share that accepted it. **Accepted** is what the rule accepted; **discarded** are those of them behind the end of an answer, which were never emitted. **Drafted** is counted where tokens are drafted: a step may draft fewer than it may, or none.

**Rows per step** are the positions that one pass of the target computes for a sequence. **Step cost** is the mean time of a decode step, drafting included, over the baseline's: speedup is tokens per step over step cost. The milliseconds of a step are split into drafting, the target's pass, judging (warps included) and the rest.

**The budget `auto`** keeps the proposed nodes whose expected tokens are worth their time. **Predicted** is the speedup that its own expectations come to, the **clairvoyant bound** what the same proposals would have given had each been cut with hindsight, under the cost curve measured in this run and with drafting free (batch 1 only).

**Identical** is the share of prompts whose token ids equal the baseline's. A lossless method under `greedy` or `coupled` has 100 %; `rejection` keeps the distribution, not the text. Rules marked **lossy** change what is emitted; an arm marked **invalid** had its acceptance forced, so that its times are real and its text means nothing. n/a: there was nothing to compute it from.
)";

std::string speedup_text(const std::optional<Ratio>& speedup) {
  if (!speedup) return "n/a";
  const std::string value = fmt::format("{:.2f}", speedup->value);
  if (!speedup->ci95) return value;
  return fmt::format("{} [{:.2f}, {:.2f}]", value, speedup->ci95->low, speedup->ci95->high);
}
std::string percentiles_text(const Percentiles& p, int digits) {
  return fmt::format("{} / {} / {}", number_text(p.p50, digits), number_text(p.p90, digits),
                     number_text(p.p99, digits));
}

Table step_table(const Summary& summary) {
  Table table({"method", "drafted", "accepted", "discarded", "rows per step",
               "steps without a draft", "step cost", "draft ms", "target ms", "judge ms",
               "other ms"});
  const auto add = [&](const ArmSummary& arm, const std::string& cost) {
    const auto& ms = arm.phase_ms;
    const auto phase = [&](double PhaseTimes::*which) {
      return ms ? fmt::format("{:.3f}", (*ms).*which) : "n/a";
    };
    table.add({arm.arm.name, fmt::format("{}", arm.drafted), fmt::format("{}", arm.accepted),
               fmt::format("{}", arm.discarded), number_text(arm.rows_per_step, 2),
               fmt::format("{} of {}", arm.steps_without_draft, arm.steps), cost,
               phase(&PhaseTimes::draft), phase(&PhaseTimes::target), phase(&PhaseTimes::judge),
               phase(&PhaseTimes::other)});
  };
  add(summary.baseline, summary.baseline.step_ms ? "1.00" : "n/a");
  for (const MethodSummary& method : summary.methods)
    add(method, number_text(method.step_cost_ratio, 2));
  return table;
}

Table budget_table(const Summary& summary) {
  Table table({"method", "proposed per step", "rows per step", "predicted speedup",
               "measured speedup", "clairvoyant bound", "measured / bound"});
  for (const MethodSummary& method : summary.methods) {
    if (!method.predicted_speedup) continue;
    std::optional<double> share;
    if (method.speedup && method.clairvoyant_speedup) {
      share = method.speedup->value / *method.clairvoyant_speedup;
    }
    table.add({method.arm.name, number_text(method.proposed_per_step, 2),
               number_text(method.rows_per_step, 2), number_text(method.predicted_speedup, 2),
               speedup_text(method.speedup), number_text(method.clairvoyant_speedup, 2),
               percent_text(share)});
  }
  return table;
}

/// Empty where the machine reports no energy.
Table energy_table(const Summary& summary) {
  Table table({"method", "joules per token", "of the baseline's"});
  const std::optional<double> plain = summary.baseline.joules_per_token;
  if (!plain) return table;
  table.add({summary.baseline.arm.name, number_text(plain, 3), "1.00"});
  for (const MethodSummary& method : summary.methods) {
    const std::optional<double> own = method.joules_per_token;
    table.add({method.arm.name, number_text(own, 3), own ? number_text(*own / *plain, 2) : "n/a"});
  }
  return table;
}

Table latency_table(const Summary& summary) {
  Table table({"method", "TTFT ms p50 / p90 / p99", "TPOT ms p50 / p90 / p99"});
  const auto add = [&](const ArmSummary& arm) {
    table.add({arm.arm.name, percentiles_text(arm.ttft_ms, 1), percentiles_text(arm.tpot_ms, 2)});
  };
  add(summary.baseline);
  for (const MethodSummary& method : summary.methods) add(method);
  return table;
}

Table acceptance_table(const Summary& summary) {
  size_t positions = 1;
  for (const MethodSummary& method : summary.methods) {
    positions = std::max(positions, method.acceptance_by_position.size());
  }
  positions = std::min(positions, kMostPositions);
  std::vector<std::string> header = {"method"};
  for (size_t i = 1; i <= positions; ++i) header.push_back(fmt::format("{}", i));
  Table table(header);
  for (const MethodSummary& method : summary.methods) {
    std::vector<std::string> cells = {method.arm.name};
    for (size_t i = 0; i < positions; ++i) {
      const auto& shares = method.acceptance_by_position;
      cells.push_back(i < shares.size() ? number_text(shares[i], 2) : "n/a");
    }
    table.add(cells);
  }
  return table;
}

Table category_table(const Summary& summary) {
  std::set<std::string> categories;
  std::vector<std::string> header = {"category"};
  for (const MethodSummary& method : summary.methods) {
    header.push_back(method.arm.name);
    for (const auto& entry : method.by_category) categories.insert(entry.first);
  }
  Table table(header);
  for (const std::string& category : categories) {
    std::vector<std::string> cells = {category};
    for (const MethodSummary& method : summary.methods) {
      const auto found = method.by_category.find(category);
      cells.push_back(found == method.by_category.end()
                          ? "n/a"
                          : fmt::format("{}; {}", speedup_text(found->second.speedup),
                                        number_text(found->second.tokens_per_step, 2)));
    }
    table.add(cells);
  }
  return table;
}

std::string divergence_text(const Summary& summary) {
  std::string out;
  for (const MethodSummary& method : summary.methods) {
    if (method.divergences.empty()) continue;
    out += fmt::format("- {}: {} of {} prompts differ from the baseline;", method.arm.name,
                       method.divergences.size(), method.prompts);
    const size_t listed = std::min(method.divergences.size(), kMostListed);
    for (size_t i = 0; i < listed; ++i) {
      out += fmt::format("{} {} at token {}", i == 0 ? " first in" : ",",
                         method.divergences[i].prompt, method.divergences[i].token);
    }
    out += listed < method.divergences.size() ? ", ...\n" : "\n";
  }
  return out.empty() ? "Every method emitted the baseline's token ids on every prompt.\n" : out;
}

std::string failure_text(const Summary& summary) {
  std::string out =
      fmt::format("## Failed\n\n{} answers failed and are left out of every figure:\n\n",
                  summary.failures.size());
  const size_t listed = std::min(summary.failures.size(), kMostListed);
  for (size_t i = 0; i < listed; ++i) {
    const FailedRow& row = summary.failures[i];
    out += fmt::format("- {}, {}: {}\n", row.prompt, row.arm, row.error);
  }
  if (listed < summary.failures.size()) out += "- ... all are in prompts.jsonl\n";
  return out + "\n";
}

}  // namespace

std::string setting_text(const Summary& summary, const ordered_json& manifest) {
  const ordered_json& bench = manifest.at("config").at("bench");
  const ordered_json& sampling = manifest.at("config").at("sampling");
  const size_t asked = manifest.at("prompts").size();
  const auto answered = static_cast<size_t>(summary.baseline.prompts);
  return fmt::format(
      "{} ({}) on {}, {}. {}{} prompts, up to {} new tokens each, batch {}, temperature {}, "
      "drafter "
      "memory {}.{}\n",
      manifest.at("model").at("name").get<std::string>(),
      manifest.at("model").at("file").get<std::string>(),
      manifest.at("machine").at("cpu").get<std::string>(),
      manifest.at("backend").get<std::string>(),
      answered < asked ? fmt::format("{} of ", answered) : "", asked,
      bench.at("max_new_tokens").get<int>(), bench.at("batch").get<int>(),
      sampling.at("temperature").get<double>(), bench.at("memory").get<std::string>(),
      summary.baseline.joules_per_token ? "" : " Energy: not reported by the machine.");
}

Table headline(const Summary& summary) {
  Table table({"method", "rule", "speedup [95 %]", "tokens/s", "tokens per step", "identical"}, 2);
  table.add({summary.baseline.arm.name, summary.baseline.arm.rule,
             summary.baseline.steps > 0 ? "1.00" : "n/a",
             number_text(summary.baseline.decode_tokens_per_s, 1),
             number_text(summary.baseline.tokens_per_step, 2),
             summary.baseline.prompts > 0 ? "100.0 %" : "n/a"});
  for (const MethodSummary& method : summary.methods) {
    const std::string_view mark = !method.arm.valid      ? " (invalid)"
                                  : !method.arm.lossless ? " (lossy)"
                                                         : "";
    table.add({method.arm.name, fmt::format("{}{}", method.arm.rule, mark),
               speedup_text(method.speedup), number_text(method.decode_tokens_per_s, 1),
               number_text(method.tokens_per_step, 2), percent_text(method.identical_rate)});
  }
  return table;
}

std::string headline_table(const Summary& summary) {
  return headline(summary).markdown();
}

std::vector<ReportSection> report_sections(const Summary& summary) {
  std::vector<ReportSection> sections;
  const auto add = [&](std::string name, std::string title, Table table) {
    if (!table.empty()) sections.push_back({std::move(name), std::move(title), std::move(table)});
  };
  add("steps", "What a step does", step_table(summary));
  add("budget", "The budget's choices", budget_table(summary));
  add("acceptance", "Acceptance by draft position", acceptance_table(summary));
  add("latency", "Latency", latency_table(summary));
  add("energy", "Energy, prompts included", energy_table(summary));
  add("categories", "By category: speedup; tokens per step", category_table(summary));
  return sections;
}

std::string make_report(const Summary& summary, const ordered_json& manifest) {
  std::string out = fmt::format("# {}\n\n{}\n{}\n",
                                manifest.at("config").at("bench").at("name").get<std::string>(),
                                setting_text(summary, manifest), headline_table(summary));
  if (!summary.failures.empty()) out += failure_text(summary);
  out += fmt::format("{}\n", divergence_text(summary));
  for (const ReportSection& section : report_sections(summary)) {
    out += fmt::format("## {}\n\n{}\n", section.title, section.table.markdown());
  }
  return out + fmt::format("## Definitions\n\n{}", kDefinitions);
}

std::string_view report_definitions() {
  return kDefinitions;
}

std::string replace_table(std::string_view readme, std::string_view name, std::string_view table) {
  const std::string opening = fmt::format("<!-- table:{} -->", name);
  constexpr std::string_view kClosing = "<!-- /table -->";
  const size_t begin = readme.find(opening);
  const size_t end = begin == std::string_view::npos ? begin : readme.find(kClosing, begin);
  if (end == std::string_view::npos) {
    throw Error("readme: has no {} with a {} behind it; put the two where the table belongs",
                opening, kClosing);
  }
  return fmt::format("{}{}\n{}{}", readme.substr(0, begin), opening, table, readme.substr(end));
}

}  // namespace coppice
