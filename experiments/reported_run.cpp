// See reported_run.h.
#include "experiments/reported_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "experiments/manifest.h"
#include "experiments/run_folder.h"
#include "experiments/run_rows.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpecBenchTasks[] = {"mt-bench", "translation",    "summarization",
                                                "qa",       "math_reasoning", "rag"};

bool is_spec_bench(std::span<const PromptRow> rows) {
  const auto is_task = [](const PromptRow& row) {
    return std::find(std::begin(kSpecBenchTasks), std::end(kSpecBenchTasks), row.category) !=
           std::end(kSpecBenchTasks);
  };
  // "qa" and "rag" alone are names that others use too.
  const auto is_known = [](const PromptRow& row) {
    return row.category != "qa" && row.category != "rag";
  };
  return std::all_of(rows.begin(), rows.end(), is_task) &&
         std::any_of(rows.begin(), rows.end(), is_known);
}

/// Lines of quality.json in a run's folder, or of one cell in a sweep's.
std::vector<QualityPoint> read_quality(const fs::path& folder, const std::string& cell) {
  const fs::path path = folder / "quality.json";
  std::vector<QualityPoint> points;
  if (!fs::exists(path)) return points;
  const auto number = [](const nlohmann::json& value) {
    return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
  };
  try {
    for (const auto& row : nlohmann::json::parse(read_whole_file(path))) {
      if (row.at("cell") != cell) continue;
      QualityPoint point{row.at("method"), number(row.at("speedup")), std::nullopt,
                         number(row.at("nll")), row.at("identical")};
      for (const char* score : {"gsm8k", "passed", "exact", "rouge_l"}) {
        if (!point.score) point.score = number(row.at(score));
      }
      points.push_back(std::move(point));
    }
  } catch (const nlohmann::json::exception&) {
    throw Error("{}: cannot be read; run coppice quality again", path.string());
  }
  return points;
}

struct SweptRun {
  fs::path folder;
  std::string label;  // "draft_length=3, temperature=1"
};
std::vector<SweptRun> finished_cells(const fs::path& sweep) {
  const fs::path path = sweep / "sweep.json";
  std::vector<SweptRun> cells;
  try {
    const auto record = nlohmann::json::parse(read_whole_file(path));
    for (const auto& cell : record.at("cells")) {
      if (cell.at("status") != "done") continue;
      std::vector<std::string> values;
      for (size_t i = 0; i < record.at("axes").size(); ++i) {
        values.push_back(fmt::format("{}={}", record["axes"][i].at("key").get<std::string>(),
                                     cell.at("values").at(i).get<std::string>()));
      }
      cells.push_back({sweep / "cells" / cell.at("cell").get<std::string>(),
                       fmt::format("{}", fmt::join(values, ", "))});
    }
  } catch (const nlohmann::json::exception&) {
    throw Error("{}: is no record of a sweep; run it again", path.string());
  }
  return cells;
}

}  // namespace

std::vector<RecordedStep> read_steps(const fs::path& folder) {
  std::vector<RecordedStep> steps;
  const fs::path path = folder / "steps.jsonl";
  if (!fs::exists(path)) return steps;
  std::istringstream lines(read_whole_file(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string at = fmt::format("{}:{}", path.string(), ++number);
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_discarded() && lines.eof()) break;  // cut off by an interrupt
    steps.push_back(step_from_json(object, at));
  }
  return steps;
}

ReportedRun read_reported_run(const fs::path& folder) {
  ReportedRun run;
  run.manifest = read_manifest(folder);
  const std::string place = (folder / "manifest.json").string();
  const auto arms = arms_of(run.manifest, place);
  run.rows = read_rows(folder);
  if (run.rows.empty()) {
    throw Error("{}: holds no prompts.jsonl with answers; run the experiment again",
                folder.string());
  }
  const auto complete = complete_prompts(run.rows, arms.size());
  std::erase_if(run.rows, [&](const PromptRow& row) { return !complete.contains(row.prompt); });
  run.steps = read_steps(folder);
  std::erase_if(run.steps, [&](const RecordedStep& s) { return !complete.contains(s.prompt); });
  run.summary = summarise(run.rows, arms);
  run.quality = read_quality(folder, "");
  try {
    run.label = run.manifest.at("config").at("bench").at("name").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    throw Error("{}: lacks the config; run the experiment again", place);
  }
  return run;
}

std::vector<ReportedRun> read_reported_runs(std::span<const std::string> folders) {
  std::vector<ReportedRun> runs;
  std::vector<std::string> others;  // another label for each
  for (const std::string& folder : folders) {
    if (fs::exists(fs::path(folder) / "sweep.json")) {
      for (const SweptRun& cell : finished_cells(folder)) {
        runs.push_back(read_reported_run(cell.folder));
        if (runs.back().quality.empty()) runs.back().quality = read_quality(folder, cell.label);
        others.push_back(cell.label);
      }
      continue;
    }
    runs.push_back(read_reported_run(folder));
    const fs::path path = fs::path(folder).lexically_normal();
    others.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  if (runs.empty()) throw Error("no finished run to report");
  std::map<std::string, int> uses;
  for (const ReportedRun& run : runs) ++uses[run.label];
  std::set<std::string> labels;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::string& label = runs[i].label;
    if (uses[label] > 1) label = others[i];
    for (int n = 2; !labels.insert(label).second; ++n) label = fmt::format("{} ({})", others[i], n);
  }
  return runs;
}

std::vector<SpecBenchSpeedup> spec_bench_speedups(const ReportedRun& run) {
  if (!is_spec_bench(run.rows)) return {};
  struct Asked {
    std::string category;
    double tokens = 0, seconds = 0;
  };
  std::map<std::pair<std::string, std::string>, Asked> questions;  // by arm and id
  for (const PromptRow& row : run.rows) {
    if (!row.error.empty()) continue;
    Asked& question = questions[{row.arm, row.prompt.substr(0, row.prompt.find('#'))}];
    question.category = row.category;
    question.tokens += static_cast<double>(row.ids.size());
    question.seconds += (row.ttft_ms + row.latency_ms) / 1e3;
  }
  // Sums of tokens per second by (task, arm); "overall" is a task of all questions.
  std::map<std::pair<std::string, std::string>, std::pair<double, int>> speeds;
  for (const auto& [key, question] : questions) {
    if (!(question.seconds > 0.0)) continue;
    for (const std::string& task : {question.category, std::string("overall")}) {
      auto& [sum, count] = speeds[{task, key.first}];
      sum += question.tokens / question.seconds;
      ++count;
    }
  }
  const auto mean = [&](const std::string& task, const std::string& arm) {
    const auto found = speeds.find({task, arm});
    return found == speeds.end() ? 0.0 : found->second.first / found->second.second;
  };
  std::vector<SpecBenchSpeedup> out;
  std::vector<std::string> tasks(std::begin(kSpecBenchTasks), std::end(kSpecBenchTasks));
  tasks.push_back("overall");
  for (const std::string& task : tasks) {
    for (const MethodSummary& method : run.summary.methods) {
      const double baseline = mean(task, run.summary.baseline.arm.name);
      const double own = mean(task, method.arm.name);
      if (baseline > 0.0 && own > 0.0) out.push_back({task, method.arm.name, own / baseline});
    }
  }
  return out;
}

}  // namespace coppice
