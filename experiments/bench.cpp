// See bench.h.
#include "experiments/bench.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/quote.h"
#include "experiments/manifest.h"
#include "experiments/measure.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "experiments/report.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Group = std::vector<const Prompt*>;

std::atomic<bool> interrupted = false;

/// Turns SIGINT and SIGTERM into a flag while it lives; a second signal ends the program at once.
class SignalGuard {
 public:
  SignalGuard() {
    interrupted = false;
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
  }
  ~SignalGuard() {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  }

 private:
  static void on_signal(int signal) {
    interrupted = true;
    std::signal(signal, SIG_DFL);
  }
};

/// Rows of the earlier part of a run. A last line without an end was cut off and is left out.
std::vector<PromptRow> read_rows(const RunFolder& folder) {
  std::vector<PromptRow> rows;
  if (!folder.has("prompts.jsonl")) return rows;
  const std::string text = folder.read("prompts.jsonl");
  const std::string place = (folder.path() / "prompts.jsonl").string();
  int line = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string at = fmt::format("{}:{}", place, ++line);
    const json row = json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                 text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!row.is_object()) throw Error("{}: is no JSON object; run the experiment again", at);
    rows.push_back(row_from_json(row, at));
  }
  return rows;
}

/// Prompts that every arm has answered.
std::set<std::string> complete_prompts(std::span<const PromptRow> rows, size_t arms) {
  std::map<std::string, std::set<std::string>> answered;
  for (const PromptRow& row : rows) answered[row.prompt].insert(row.arm);
  std::set<std::string> complete;
  for (const auto& entry : answered) {
    if (entry.second.size() == arms) complete.insert(entry.first);
  }
  return complete;
}

std::vector<Prompt> load_prompts(const BenchConfig& config) {
  std::vector<Prompt> prompts;
  for (const std::string& source : config.bench.prompts) {
    std::vector<Prompt> more;
    if (source == "builtin") {
      more = builtin_prompts();
    } else {
      const auto file = find_data(source, config.folder);
      if (!file) {
        throw Error(
            "bench.prompts: {}: no such file; give a JSONL file (COPPICE_DATA names a folder that "
            "is searched too), or builtin",
            quote(source));
      }
      more = read_prompts(*file);
      const auto most = static_cast<size_t>(config.bench.prompts_per_file);
      if (most > 0 && more.size() > most) more.resize(most);
    }
    std::move(more.begin(), more.end(), std::back_inserter(prompts));
  }
  std::set<std::string_view> ids;
  for (const Prompt& prompt : prompts) {
    if (ids.insert(prompt.id).second) continue;
    throw Error("bench.prompts: two prompts have the id {}; give each its own", quote(prompt.id));
  }
  return pick_prompts(std::move(prompts), config.bench.categories,
                      config.bench.prompts_per_category);
}

/// Prompts in the order of measurement, cut into batches.
std::vector<Group> group_prompts(std::span<const Prompt> prompts, const BenchOptions& bench) {
  std::vector<Group> groups;
  for (const int index : shuffled(static_cast<int>(prompts.size()), bench.seed, 0)) {
    if (groups.empty() || static_cast<int>(groups.back().size()) == bench.batch) {
      groups.emplace_back();
    }
    groups.back().push_back(&prompts[static_cast<size_t>(index)]);
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

/// One experiment under way.
class Run {
 public:
  Run(const BenchConfig& config, const RunFolder& folder, std::span<const Prompt> prompts,
      Measurement& measurement)
      : config_(config),
        folder_(folder),
        groups_(group_prompts(prompts, config.bench)),
        measurement_(measurement),
        total_(static_cast<int>(prompts.size())) {}

  Group order() const {
    Group all;
    for (const Group& group : groups_) all.insert(all.end(), group.begin(), group.end());
    return all;
  }

  /// Drops what an earlier run left unfinished, and marks the rest as done.
  void resume() {
    const auto complete = complete_prompts(read_rows(folder_), measurement_.arms().size());
    for (const Group& group : groups_) {
      const bool done = std::all_of(group.begin(), group.end(), [&](const Prompt* prompt) {
        return complete.contains(prompt->id);
      });
      if (!done) continue;
      for (const Prompt* prompt : group) done_.insert(prompt->id);
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
      const int arms = static_cast<int>(measurement_.arms().size());
      const auto lane = static_cast<uint32_t>(index) + 1;  // lane 0 ordered the prompts
      for (const int arm : shuffled(arms, config_.bench.seed, lane)) {
        const ArmResult result = measurement_.run(arm, group, interrupted);
        std::string lines;
        for (const PromptRow& row : result.rows) lines += row_to_json(row).dump() + "\n";
        folder_.append("steps.jsonl", result.steps);
        folder_.append("prompts.jsonl", lines);
      }
      for (const Prompt* prompt : group) done_.insert(prompt->id);
      progress.advance(static_cast<int>(group.size()));
    }
  }

 private:
  const BenchConfig& config_;
  const RunFolder& folder_;
  std::vector<Group> groups_;
  Measurement& measurement_;
  int total_;
  std::set<std::string> done_;
};

/// Writes what can be said of the finished prompts.
Summary report_rows(const RunFolder& folder, const ordered_json& manifest) {
  const auto arms = arms_of(manifest, (folder.path() / "manifest.json").string());
  std::vector<PromptRow> rows = read_rows(folder);
  const auto complete = complete_prompts(rows, arms.size());
  std::erase_if(rows, [&](const PromptRow& row) { return !complete.contains(row.prompt); });
  const Summary summary = summarise(rows, arms);
  folder.write_whole("summary.json", summary_to_json(summary, manifest).dump(2) + "\n");
  folder.write_whole("report.md", make_report(summary, manifest));
  return summary;
}

ordered_json read_manifest(const RunFolder& folder) {
  const ordered_json manifest = ordered_json::parse(folder.read("manifest.json"), nullptr, false);
  if (!manifest.is_object()) {
    throw Error("{}: is no manifest; run the experiment again",
                (folder.path() / "manifest.json").string());
  }
  return manifest;
}

void check_resume(const BenchConfig& config, const RunFolder& folder,
                  const ordered_json& manifest) {
  if (config.bench.memory == "carried") {
    throw Error("{}: drafters that carry memory cannot be resumed; start anew with --overwrite",
                folder.path().string());
  }
  check_same_run(read_manifest(folder), manifest, (folder.path() / "manifest.json").string());
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

}  // namespace

int run_bench(const BenchRequest& request) {
  const BenchConfig config = read_bench_config(request.config, request.overrides);
  std::vector<Prompt> prompts = load_prompts(config);
  const fs::path model_path = find_model(config.model.path, config.folder);
  const auto backend = make_backend({.name = config.bench.backend,
                                     .threads = config.bench.threads,
                                     .target = config.bench.target});
  const LoadedModel target = load_model(model_path, *backend);
  std::optional<LoadedModel> draft;
  if (!config.model.draft.empty()) {
    draft = load_model(find_model(config.model.draft, config.folder), *backend);
  }
  const LoadedModel* draft_model = draft ? &*draft : nullptr;
  encode_prompts(prompts, *target.tokenizer, config.bench.raw);
  Measurement measurement(config, target, draft_model, *backend, prompts);

  const RunFolder folder(
      request.out.empty() ? fs::path("results") / config.bench.name : request.out,
      request.existing);
  Run run(config, folder, prompts, measurement);
  const ordered_json manifest =
      make_manifest(config, target, draft_model, *backend, measurement.arms(), run.order());
  if (request.existing == Existing::resume && folder.has("manifest.json")) {
    check_resume(config, folder, manifest);
    run.resume();
  }
  folder.write_whole("manifest.json", manifest.dump(2) + "\n");

  fmt::print(stderr, "bench: {} prompts, {} arms, {}\n", prompts.size(), measurement.arms().size(),
             backend->describe());
  const SignalGuard guard;
  try {
    if (!run.all_done()) {
      measurement.warm_up(interrupted);
      run.measure();
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
  const fs::path manifest_path = request.run / "manifest.json";
  if (!fs::exists(manifest_path)) {
    throw Error("{}: holds no manifest.json; give the folder of a run", request.run.string());
  }
  const RunFolder folder(request.run, Existing::resume);
  const ordered_json manifest = read_manifest(folder);
  try {
    const Summary summary = report_rows(folder, manifest);
    if (request.readme.empty()) return;
    const std::string readme = read_whole_file(request.readme);
    const std::string name = manifest.at("config").at("bench").at("name").get<std::string>();
    write_whole_file(request.readme, replace_table(readme, name, headline_table(summary)));
  } catch (const json::exception&) {
    throw Error("{}: lacks what a report needs; run the experiment again", manifest_path.string());
  }
}

}  // namespace coppice
