// See bench.h.
#include "experiments/bench.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "experiments/bench_prompts.h"
#include "experiments/manifest.h"
#include "experiments/measure.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "experiments/report.h"
#include "experiments/run_rows.h"
#include "experiments/spec_bench.h"
#include "experiments/sweep_report.h"
#include "experiments/sweep_run.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Group = std::vector<Prompt*>;

/// Prompts in the order of measurement, cut into batches; later turns of a batch come right behind
/// it.
std::vector<Group> group_prompts(std::span<Prompt> prompts, const BenchOptions& bench) {
  std::vector<Prompt*> first;
  std::map<std::string_view, Prompt*> next;
  for (Prompt& prompt : prompts) {
    if (prompt.previous.empty()) {
      first.push_back(&prompt);
    } else {
      next[prompt.previous] = &prompt;
    }
  }
  std::vector<Group> groups;
  const std::vector<int> order = shuffled(static_cast<int>(first.size()), bench.seed, 0);
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(bench.batch)) {
    Group group;
    for (size_t i = begin; i < std::min(begin + bench.batch, order.size()); ++i) {
      group.push_back(first[static_cast<size_t>(order[i])]);
    }
    while (!group.empty()) {
      Group later;
      for (const Prompt* prompt : group) {
        const auto found = next.find(prompt->id);
        if (found != next.end()) later.push_back(found->second);
      }
      groups.push_back(std::move(group));
      group = std::move(later);
    }
  }
  return groups;
}

/// Keeps the lines of `name` whose prompt is in `kept`.
void keep_lines(const RunFolder& folder, std::string_view name, const std::set<std::string>& kept) {
  if (!folder.has(name)) return;
  const std::string text = folder.read(name);
  std::string out;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string line = text.substr(begin, end + 1 - begin);
    const json object = json::parse(line, nullptr, false);
    if (object.is_object() && kept.contains(object.value("prompt", ""))) out += line;
  }
  folder.write_whole(name, out);
}

/// What was said so far, where prompts have later turns: the baseline's answers, for every arm.
class Conversations {
 public:
  explicit Conversations(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Keeps the baseline's answers to a group.
  void hear(const Group& group, std::span<const PromptRow> rows) {
    for (const Prompt* prompt : group) {
      for (const PromptRow& row : rows) {
        if (row.prompt != prompt->id || row.arm != kBaselineName || !row.error.empty()) continue;
        std::vector<std::string>& said = said_[prompt->id];
        if (!prompt->previous.empty()) said = said_[prompt->previous];
        said.push_back(prompt->text);
        said.push_back(tokenizer_.decode(row.ids));  // control tokens have no text
      }
    }
  }
  /// Fills the ids of later turns. They stay empty, and fail, where the turn before had no answer.
  void go_on(const Group& group) const {
    for (Prompt* prompt : group) {
      const auto said = said_.find(prompt->previous);
      if (prompt->previous.empty() || said == said_.end()) continue;
      prompt->ids = encode_turn(said->second, *prompt, tokenizer_);
    }
  }

 private:
  const Tokenizer& tokenizer_;
  std::map<std::string, std::vector<std::string>> said_;  // by prompt: user and answer in turn
};

/// One experiment under way.
class Run {
 public:
  Run(const BenchConfig& config, const RunFolder& folder, std::span<Prompt> prompts,
      const Tokenizer& tokenizer, Measurement& measurement)
      : config_(config),
        folder_(folder),
        groups_(group_prompts(prompts, config.bench)),
        conversations_(tokenizer),
        measurement_(measurement),
        total_(static_cast<int>(prompts.size())) {}

  std::vector<const Prompt*> order() const {
    std::vector<const Prompt*> all;
    for (const Group& group : groups_) all.insert(all.end(), group.begin(), group.end());
    return all;
  }

  /// Drops what an earlier run left unfinished, and marks the rest as done.
  void resume() {
    const std::vector<PromptRow> rows = read_rows(folder_.path());
    const auto complete = complete_prompts(rows, measurement_.arms().size());
    for (const Group& group : groups_) {
      const bool done = std::all_of(group.begin(), group.end(), [&](const Prompt* prompt) {
        return complete.contains(prompt->id);
      });
      if (!done) continue;
      for (const Prompt* prompt : group) done_.insert(prompt->id);
      conversations_.hear(group, rows);
    }
    keep_lines(folder_, "prompts.jsonl", done_);
    keep_lines(folder_, "steps.jsonl", done_);
  }

  bool all_done() const { return static_cast<int>(done_.size()) == total_; }
  int done() const { return static_cast<int>(done_.size()); }

  /// Measures what is not done yet. Throws Interrupted or Failure; finished rows are on disk.
  void measure() {
    Progress progress(total_ - done(), "prompts");
    for (size_t index = 0; index < groups_.size(); ++index) {
      const Group& group = groups_[index];
      if (done_.contains(group.front()->id)) continue;
      conversations_.go_on(group);
      const int arms = static_cast<int>(measurement_.arms().size());
      const auto lane = static_cast<uint32_t>(index) + 1;  // lane 0 ordered the prompts
      for (const int arm : shuffled(arms, config_.bench.seed, lane)) {
        const ArmResult result = measurement_.run(arm, group, interrupted());
        std::string lines;
        for (const PromptRow& row : result.rows) lines += row_to_json(row).dump() + "\n";
        folder_.append("steps.jsonl", result.steps);
        folder_.append("prompts.jsonl", lines);
        if (arm == 0) conversations_.hear(group, result.rows);
      }
      for (const Prompt* prompt : group) done_.insert(prompt->id);
      progress.advance(static_cast<int>(group.size()));
    }
  }

 private:
  const BenchConfig& config_;
  const RunFolder& folder_;
  std::vector<Group> groups_;
  Conversations conversations_;
  Measurement& measurement_;
  int total_;
  std::set<std::string> done_;
};

/// For a report whose baseline moved while it was measured; else nothing.
std::string drift_text(std::span<const PromptRow> rows) {
  const std::optional<double> drift = baseline_drift(rows);
  if (!drift || *drift <= kMostDrift) return "";
  return fmt::format(
      "**The machine's own speed changed**: the baseline moved by {:.1f} % while this was "
      "measured. "
      "Measure it again on a quiet machine.\n\n",
      100.0 * *drift);
}

/// Writes what can be said of the finished prompts.
Summary report_rows(const RunFolder& folder, const ordered_json& manifest) {
  const auto arms = arms_of(manifest, (folder.path() / "manifest.json").string());
  std::vector<PromptRow> rows = read_rows(folder.path());
  const auto complete = complete_prompts(rows, arms.size());
  std::erase_if(rows, [&](const PromptRow& row) { return !complete.contains(row.prompt); });
  const Summary summary = summarise(rows, arms);
  folder.write_whole("summary.json", summary_to_json(summary, manifest).dump(2) + "\n");
  std::string report = make_report(summary, manifest);
  report.insert(std::min(report.find("## "), report.size()), drift_text(rows));
  folder.write_whole("report.md", report);
  return summary;
}

void check_resume(const BenchConfig& config, const RunFolder& folder,
                  const ordered_json& manifest) {
  if (config.bench.memory == "carried") {
    throw Error("{}: drafters that carry memory cannot be resumed; start anew with --overwrite",
                folder.path().string());
  }
  check_same_run(read_manifest(folder.path()), manifest,
                 (folder.path() / "manifest.json").string());
}

int finish(const RunFolder& folder, const Summary& summary) {
  fmt::print("{}", headline_table(summary));
  std::fflush(stdout);
  for (const FailedRow& row : summary.failures) {
    fmt::print(stderr, "failed: {}, {}: {}\n", row.prompt, row.arm, row.error);
  }
  fmt::print(stderr, "bench: {}; report: {}\n",
             summary.failures.empty()
                 ? "done"
                 : fmt::format("{} answers failed and are left out", summary.failures.size()),
             (folder.path() / "report.md").string());
  return summary.failures.empty() ? 0 : 1;
}

fs::path folder_for(const BenchConfig& config, const fs::path& out) {
  return out.empty() ? fs::path("results") / config.bench.name : out;
}

void write_sweep_report(const ReportRequest& request) {
  write_whole_file(request.run / "report.md", sweep_report(request.run));
  if (request.readme.empty()) return;
  const std::string readme = read_whole_file(request.readme);
  write_whole_file(request.readme, replace_table(readme, sweep_name(request.run),
                                                 sweep_table(request.run).markdown()));
}

}  // namespace

int run_bench(const BenchRequest& request) {
  if (const auto sweep = read_sweep(request.config, request.overrides)) {
    if (!request.trace.empty()) {
      throw Error("{}: is a sweep; --trace is for a single run", request.config.string());
    }
    return run_sweep(*sweep, request);
  }
  if (request.jobs != "1" || request.dry_run || !request.cell.empty()) {
    throw Error("{}: has no [sweep] table; --jobs, --dry-run and --cell are for a sweep's cells",
                request.config.string());
  }
  const BenchConfig config = read_bench_config(request.config, request.overrides);
  const int code = run_bench(config, request.out, request.existing, request.trace);
  if (!request.spec_bench_answers.empty() && code != kInterruptedStatus) {
    write_spec_bench_answers(config, folder_for(config, request.out), request.spec_bench_answers);
  }
  return code;
}

int run_bench(const BenchConfig& config, const fs::path& out, Existing existing,
              const fs::path& timeline) {
  std::vector<Prompt> prompts = load_prompts(config);
  const fs::path model_path = find_model(config.model.path, config.folder);
  const auto backend = make_backend(config.bench.machine());
  const LoadedModel target = load_model(model_path, *backend);
  std::optional<LoadedModel> draft;
  const bool drafts =
      std::any_of(config.methods.begin(), config.methods.end(), [](const MethodConfig& method) {
        return needs_draft_model(find_method(method.spec.method), method.spec.options);
      });
  if (drafts) {
    const std::string& named = config.model.draft;
    draft = load_draft(named.empty() ? "" : find_model(named, config.folder), target, *backend);
  }
  const LoadedModel* draft_model = draft ? &*draft : nullptr;
  encode_prompts(prompts, *target.tokenizer, config.bench.raw, config.bench.max_new_tokens);
  Measurement measurement(config, target, draft_model, *backend, prompts);

  const RunFolder folder(folder_for(config, out), existing);
  Run run(config, folder, prompts, *target.tokenizer, measurement);
  const ordered_json manifest =
      make_manifest(config, target, draft_model, *backend, measurement.arms(), run.order());
  if (existing == Existing::resume && folder.has("manifest.json")) {
    check_resume(config, folder, manifest);
    run.resume();
  }
  folder.write_whole("manifest.json", manifest.dump(2) + "\n");

  fmt::print(stderr, "bench: {} prompts, {} arms, {}\n", prompts.size(), measurement.arms().size(),
             backend->describe());
  const InterruptGuard guard;
  std::optional<StepTrace> trace;
  try {
    if (!run.all_done()) {
      measurement.warm_up(interrupted());
      if (!timeline.empty()) measurement.set_trace(&trace.emplace(timeline));
      run.measure();
      if (trace) trace->end();
    }
  } catch (const Interrupted&) {
    report_rows(folder, manifest);
    fmt::print(stderr,
               "\nbench: interrupted; {} of {} prompts are kept in {}; the same command with "
               "--resume goes on\n",
               run.done(), prompts.size(), folder.path().string());
    return kInterruptedStatus;
  }
  return finish(folder, report_rows(folder, manifest));
}

void write_report(const ReportRequest& request) {
  if (holds_sweep(request.run)) return write_sweep_report(request);
  const ordered_json manifest = read_manifest(request.run);
  const RunFolder folder(request.run, Existing::resume);
  try {
    const Summary summary = report_rows(folder, manifest);
    if (request.readme.empty()) return;
    const std::string readme = read_whole_file(request.readme);
    const std::string name = manifest.at("config").at("bench").at("name").get<std::string>();
    write_whole_file(request.readme, replace_table(readme, name, headline_table(summary)));
  } catch (const json::exception&) {
    throw Error("{}: lacks what a report needs; run the experiment again",
                (request.run / "manifest.json").string());
  }
}

}  // namespace coppice
