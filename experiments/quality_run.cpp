// See quality_run.h.
#include "experiments/quality_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/bench_prompts.h"
#include "experiments/code_tasks.h"
#include "experiments/manifest.h"
#include "experiments/model_files.h"
#include "experiments/perplexity.h"
#include "experiments/quality_metrics.h"
#include "experiments/run_folder.h"
#include "experiments/run_rows.h"
#include "experiments/statistics.h"
#include "experiments/summary.h"
#include "experiments/sweep_folder.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

/// Mean of what there was; empty for nothing.
class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  std::optional<double> value() const {
    return count_ > 0 ? std::optional(sum_ / count_) : std::nullopt;
  }

 private:
  double sum_ = 0;
  int count_ = 0;
};

/// The target model, and how likely it finds answers.
class Target {
 public:
  explicit Target(const BenchConfig& config)
      : backend_(make_backend(config.bench.machine())),
        loaded_(load_model(find_model(config.model.path, config.folder), *backend_)) {}

  const Tokenizer& tokenizer() const { return *loaded_.tokenizer; }

  /// Mean over the answer's tokens.
  double nll(const Ids& prompt, const Ids& answer) {
    Ids all = prompt;
    all.insert(all.end(), answer.begin(), answer.end());
    const auto known = known_.find(all);
    if (known != known_.end()) return known->second;
    TextScorer scorer(*loaded_.model, *backend_, all,
                      {.chunk = std::max(static_cast<int>(all.size()), 2)});
    Mean mean;
    for (auto logits = scorer.next(); !logits.empty(); logits = scorer.next()) {
      if (scorer.index() < prompt.size()) continue;
      mean.add(negative_log_likelihood(logits, all[scorer.index()]));
    }
    return known_[std::move(all)] = mean.value().value_or(0.0);
  }

 private:
  std::unique_ptr<Backend> backend_;
  LoadedModel loaded_;
  std::map<Ids, double> known_;  // arms often give the same answer
};

/// Everything about one run that its arms share.
struct RunAnswers {
  std::vector<ArmInfo> arms;
  std::vector<PromptRow> rows;
  std::map<std::string, Prompt> prompts;     // with references; empty where the files are gone
  std::map<std::string, Ids> prompt_ids;     // by prompt
  std::map<std::string, double> speedup_of;  // by arm
};

RunAnswers read_answers(const fs::path& run, const BenchConfig& config) {
  RunAnswers out;
  const ordered_json manifest = read_manifest(run);
  out.arms = arms_of(manifest, (run / "manifest.json").string());
  out.rows = read_rows(run);
  if (out.rows.empty()) {
    throw Error("{}: has no rows in prompts.jsonl; run it again", run.string());
  }
  std::erase_if(out.rows, [](const PromptRow& row) { return !row.error.empty(); });
  try {
    for (Prompt& prompt : load_prompts(config)) out.prompts[prompt.id] = std::move(prompt);
  } catch (const Error& error) {
    fmt::print(stderr, "quality: no references: {}\n", error.what());
  }
  for (const PromptRow& row : out.rows) {
    if (!row.prompt_ids.empty()) out.prompt_ids[row.prompt] = row.prompt_ids;
  }
  out.speedup_of[out.arms[0].name] = 1.0;
  for (const MethodSummary& method : summarise(out.rows, out.arms).methods) {
    if (method.speedup) out.speedup_of[method.arm.name] = method.speedup->value;
  }
  return out;
}

/// Ids of the answers that an arm's are compared with.
std::map<std::string, Ids> compared_with(const std::vector<PromptRow>& rows,
                                         const std::vector<ArmInfo>& arms, const std::string& arm) {
  const bool has_arm =
      std::any_of(arms.begin(), arms.end(), [&](const ArmInfo& info) { return info.name == arm; });
  std::map<std::string, Ids> answers;
  for (const PromptRow& row : rows) {
    if (row.arm == (has_arm ? arm : arms[0].name)) answers[row.prompt] = row.ids;
  }
  return answers;
}

/// Scores one answer by what its prompt knows about the right one.
struct TaskScores {
  Mean gsm8k, passed, rouge_l, exact;

  void add(const Prompt& prompt, const std::string& answer, const QualityOptions& options) {
    if (prompt.code) {
      if (options.run_code) {
        passed.add(run_in_sandbox(program_for(*prompt.code, answer), options.limits).passed);
      }
    } else if (prompt.category == "gsm8k") {
      const auto right = final_number(prompt.reference);
      gsm8k.add(right && final_number(answer) == right);
    } else if (!prompt.reference.empty()) {
      rouge_l.add(coppice::rouge_l(answer, prompt.reference));
      exact.add(exact_match(answer, prompt.reference));
    }
  }
};

AnswerQuality judge_arm(const ArmInfo& arm, const RunAnswers& run,
                        const std::map<std::string, Ids>& others, Target* target,
                        const QualityOptions& options) {
  AnswerQuality out;
  out.arm = arm.name;
  out.rule = arm.rule;
  out.lossless = arm.lossless;
  const auto speedup = run.speedup_of.find(arm.name);
  if (speedup != run.speedup_of.end()) out.speedup = speedup->second;
  Mean identical, repetition, nll;
  std::vector<double> differ_at;
  TaskScores scores;
  for (const PromptRow& row : run.rows) {
    if (row.arm != arm.name) continue;
    ++out.answers;
    repetition.add(repetition_rate(row.ids));
    const auto other = others.find(row.prompt);
    if (other != others.end()) {
      const auto at = first_difference(row.ids, other->second);
      identical.add(!at);
      if (at) differ_at.push_back(*at);
    }
    if (target == nullptr || !arm.valid) continue;
    const auto prompt_ids = run.prompt_ids.find(row.prompt);
    if (prompt_ids != run.prompt_ids.end() && !row.ids.empty()) {
      nll.add(target->nll(prompt_ids->second, row.ids));
    }
    const auto prompt = run.prompts.find(row.prompt);
    if (prompt == run.prompts.end()) continue;
    scores.add(prompt->second, target->tokenizer().decode(row.ids), options);
  }
  out.identical = identical.value().value_or(0.0);
  out.divergence = percentile(differ_at, 0.5);
  out.repetition = repetition.value().value_or(0.0);
  out.nll = nll.value();
  out.gsm8k = scores.gsm8k.value();
  out.passed = scores.passed.value();
  out.rouge_l = scores.rouge_l.value();
  out.exact = scores.exact.value();
  return out;
}

/// Folders of runs, with what tells a sweep's cells apart.
std::vector<std::pair<std::string, fs::path>> runs_of(const fs::path& folder) {
  if (!holds_sweep(folder)) return {{"", folder}};
  const ordered_json record =
      ordered_json::parse(read_whole_file(folder / "sweep.json"), nullptr, false);
  std::vector<std::pair<std::string, fs::path>> runs;
  for (const auto& cell : record.at("cells")) {
    if (cell.at("status") != "done") continue;
    std::vector<std::string> parts;
    for (size_t i = 0; i < record.at("axes").size(); ++i) {
      parts.push_back(fmt::format("{}={}", record["axes"][i].at("key").get<std::string>(),
                                  cell.at("values")[i].get<std::string>()));
    }
    runs.emplace_back(fmt::format("{}", fmt::join(parts, ", ")),
                      folder / "cells" / cell.at("cell").get<std::string>());
  }
  return runs;
}

void mark_frontier(std::vector<AnswerQuality>& rows) {
  for (AnswerQuality& row : rows) {
    if (!row.speedup) continue;
    row.frontier = std::none_of(rows.begin(), rows.end(), [&](const AnswerQuality& other) {
      return other.speedup && *other.speedup >= *row.speedup && other.worth() >= row.worth() &&
             (*other.speedup > *row.speedup || other.worth() > row.worth());
    });
  }
}

struct Column {
  std::string title;
  std::function<std::string(const AnswerQuality&)> text;  // "": nothing is known
};

std::string number(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "";
}
std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100.0 * *share) : "";
}

}  // namespace

double AnswerQuality::worth() const {
  Mean task;
  for (const auto& score : {gsm8k, passed, exact}) {
    if (score) task.add(*score);
  }
  if (task.value()) return *task.value();
  return nll ? -*nll : identical;
}

std::vector<AnswerQuality> run_quality(const fs::path& folder, const QualityOptions& options) {
  std::vector<AnswerQuality> rows;
  std::map<std::string, std::unique_ptr<Target>> targets;  // by model
  std::optional<RunAnswers> against;
  if (!options.against.empty()) {
    against =
        read_answers(options.against, read_bench_config(options.against / "manifest.json", {}));
  }
  for (const auto& [cell, run] : runs_of(folder)) {
    const BenchConfig config = read_bench_config(run / "manifest.json", {});
    const RunAnswers answers = read_answers(run, config);
    Target* target = nullptr;
    if (options.score) {
      auto& made = targets[config.model.path];
      if (made == nullptr) made = std::make_unique<Target>(config);
      target = made.get();
    }
    for (const ArmInfo& arm : answers.arms) {
      const auto others = against ? compared_with(against->rows, against->arms, arm.name)
                                  : compared_with(answers.rows, answers.arms, answers.arms[0].name);
      rows.push_back(judge_arm(arm, answers, others, target, options));
      rows.back().cell = cell;
    }
  }
  mark_frontier(rows);
  return rows;
}

Table quality_table(const std::vector<AnswerQuality>& rows) {
  using Row = const AnswerQuality&;
  const std::vector<Column> all = {
      {"cell", [](Row r) { return r.cell; }},
      {"method", [](Row r) { return r.arm; }},
      {"rule", [](Row r) { return r.rule + (r.lossless ? "" : " (lossy)"); }},
      {"speedup", [](Row r) { return number(r.speedup, 2); }},
      {"answers", [](Row r) { return fmt::format("{}", r.answers); }},
      {"identical", [](Row r) { return percent(r.identical); }},
      {"differs at", [](Row r) { return number(r.divergence, 0); }},
      {"nll", [](Row r) { return number(r.nll, 4); }},
      {"repetition", [](Row r) { return percent(r.repetition); }},
      {"GSM8K", [](Row r) { return percent(r.gsm8k); }},
      {"passed", [](Row r) { return percent(r.passed); }},
      {"ROUGE-L", [](Row r) { return number(r.rouge_l, 3); }},
      {"exact", [](Row r) { return percent(r.exact); }},
      {"frontier", [](Row r) { return std::string(r.frontier ? "yes" : ""); }}};
  std::vector<Column> shown;
  std::vector<std::string> header;
  for (const Column& column : all) {
    const bool any =
        std::any_of(rows.begin(), rows.end(), [&](Row row) { return !column.text(row).empty(); });
    if (!any) continue;
    shown.push_back(column);
    header.push_back(column.title);
  }
  Table table(header, header.empty() || header[0] != "cell" ? 2 : 3);
  for (const AnswerQuality& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : shown) cells.push_back(column.text(row));
    table.add(std::move(cells));
  }
  return table;
}

std::string quality_definitions() {
  return "**Identical** is the share of answers whose token ids equal the baseline's (or those of "
         "the run compared with), **differs at** the median first token of the others. **nll** is "
         "the mean negative log-likelihood of an answer's tokens under the target at temperature "
         "1, in nats: what a lossy rule lets in costs some. **Repetition** is the share of 4-grams "
         "an answer had before. GSM8K: right final numbers; passed: programs that pass their "
         "tests; ROUGE-L and exact: against the reference answers. The **frontier** holds what "
         "nothing beats in both speedup and quality (the task's score, else nll).\n";
}

ordered_json quality_to_json(const std::vector<AnswerQuality>& rows) {
  ordered_json out = ordered_json::array();
  const auto or_null = [](const std::optional<double>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
  };
  for (const AnswerQuality& row : rows) {
    out.push_back({{"cell", row.cell},
                   {"method", row.arm},
                   {"rule", row.rule},
                   {"lossless", row.lossless},
                   {"answers", row.answers},
                   {"speedup", or_null(row.speedup)},
                   {"identical", row.identical},
                   {"divergence", or_null(row.divergence)},
                   {"nll", or_null(row.nll)},
                   {"repetition", row.repetition},
                   {"gsm8k", or_null(row.gsm8k)},
                   {"passed", or_null(row.passed)},
                   {"rouge_l", or_null(row.rouge_l)},
                   {"exact", or_null(row.exact)},
                   {"frontier", row.frontier}});
  }
  return out;
}

}  // namespace coppice
