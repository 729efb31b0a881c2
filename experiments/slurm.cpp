// See slurm.h. Commands: sbatch(1), squeue(1), scancel(1) of Slurm 20 and later.
#include "experiments/slurm.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "experiments/child_process.h"
#include "experiments/interrupt.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::milliseconds kBetweenLooks{1000};
constexpr int kLost = 3;           // looks that miss a task before it counts as lost
constexpr int kMostSubmitted = 3;  // times
constexpr int kMostSilent = 60;    // looks without an answer

/// A word for a shell.
std::string shell_quoted(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string first_word(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  words >> word;
  return word;
}

std::string job_of(const std::string& task) {
  return task.substr(0, task.find('_'));
}

/// Tasks of these jobs that wait or run; empty when Slurm does not answer.
std::optional<std::set<std::string>> queued_tasks(const std::set<std::string>& jobs) {
  std::set<std::string> tasks;
  for (const std::string& job : jobs) {
    const ChildResult ran =
        run_child({.words = {"squeue", "--noheader", "--array", "--format=%i", "--jobs=" + job}});
    // A job that ended some minutes ago is no longer known.
    if (ran.status != 0 && ran.err.find("Invalid job id") == std::string::npos) return {};
    std::istringstream words(ran.out);
    for (std::string word; words >> word;) tasks.insert(word);
  }
  return tasks;
}

template <class Tasks>
std::set<std::string> jobs_of(const Tasks& tasks) {
  std::set<std::string> jobs;
  for (const auto& task : tasks) {
    if (!task.id.empty()) jobs.insert(job_of(task.id));
  }
  return jobs;
}

}  // namespace

/// Finds the tasks of an earlier run that are still queued.
void SlurmJobs::adopt(std::vector<Task>& tasks) const {
  const fs::path path = folder_.path() / "slurm.json";
  if (!fs::exists(path)) return;
  const json known = json::parse(read_whole_file(path), nullptr, false);
  if (!known.is_object()) return;
  for (Task& task : tasks) task.id = known.value(task.cell->hash, "");
  const auto queued = queued_tasks(jobs_of(tasks));
  for (Task& task : tasks) {
    if (queued && !queued->contains(task.id)) task.id.clear();
  }
}

/// Submits what has no id yet, as one array.
void SlurmJobs::submit(std::vector<Task>& tasks) const {
  std::vector<Task*> fresh;
  std::vector<std::string> hashes, words;
  for (Task& task : tasks) {
    if (!task.id.empty()) continue;
    fresh.push_back(&task);
    hashes.push_back(task.cell->hash);
    folder_.forget_state(task.cell->hash);  // what it says from now on is this task's
  }
  if (fresh.empty()) return;
  for (const std::string& word : command_.words) words.push_back(shell_quoted(word));
  const fs::path script = folder_.path() / "slurm.sh", logs = folder_.path() / "slurm";
  write_whole_file(script, fmt::format("#!/bin/bash\ncells=({})\n"
                                       "exec {} --cell \"${{cells[SLURM_ARRAY_TASK_ID]}}\"\n",
                                       fmt::join(hashes, " "), fmt::join(words, " ")));
  std::error_code error;
  fs::create_directories(logs, error);
  ChildCommand command{{"sbatch", "--parsable", "--job-name=coppice-" + sweep_.name,
                        fmt::format("--array=0-{}", fresh.size() - 1),
                        fmt::format("--output={}", (fs::absolute(logs) / "%A_%a.txt").string())}};
  command.words.insert(command.words.end(), options_.begin(), options_.end());
  command.words.push_back(script.string());
  const ChildResult ran = run_child(command);
  if (ran.status == kNotStarted) {
    throw Error("--jobs slurm: there is no sbatch here; run on a machine that submits to Slurm");
  }
  if (ran.status != 0) throw Failure("sbatch: {}", ran.reason());
  const std::string job = first_word(ran.out).substr(0, first_word(ran.out).find(';'));

  json known = json::object();
  for (size_t i = 0; i < fresh.size(); ++i) {
    fresh[i]->id = fmt::format("{}_{}", job, i);
    fresh[i]->missed = 0;
    ++fresh[i]->submitted;
  }
  for (const Task& task : tasks) known[task.cell->hash] = task.id;
  write_whole_file(folder_.path() / "slurm.json", known.dump(2) + "\n");
  fmt::print(stderr, "sweep: submitted {} cells as Slurm job {}\n", fresh.size(), job);
}

void SlurmJobs::cancel(const std::vector<Task>& tasks) const {
  for (const std::string& job : jobs_of(tasks)) run_child({.words = {"scancel", job}});
}

/// True when the cell has ended; a lost task loses its id.
bool SlurmJobs::collect(Task& task, const std::set<std::string>& queued,
                        SweepProgress& progress) const {
  CellState state = folder_.state(task.cell->hash);
  if (state.status == CellStatus::waiting) {
    task.missed = queued.contains(task.id) ? 0 : task.missed + 1;
    if (task.missed < kLost) return false;
    if (task.submitted < kMostSubmitted) {
      fmt::print(stderr, "sweep: Slurm lost task {} ({}); submitting it again\n", task.id,
                 cell_text(sweep_, *task.cell));
      task.id.clear();
      return false;
    }
    const fs::path log = folder_.path() / "slurm" / (task.id + ".txt");
    state = {CellStatus::failed,
             0,
             fmt::format("Slurm lost it {} times; see {}", task.submitted, log.string()),
             {}};
    folder_.set_state(sweep_, *task.cell, state);
  }
  folder_.write_report(sweep_);
  progress.ended(*task.cell, task.index, state);
  return true;
}

void SlurmJobs::run(const std::vector<const SweepCell*>& cells, SweepProgress& progress) {
  std::vector<Task> tasks;
  for (size_t i = 0; i < cells.size(); ++i) tasks.push_back({cells[i], i, ""});
  adopt(tasks);
  int silent = 0;
  while (!tasks.empty()) {
    submit(tasks);
    std::this_thread::sleep_for(kBetweenLooks);
    if (interrupted()) return cancel(tasks);
    const auto queued = queued_tasks(jobs_of(tasks));
    if (!queued) {
      if (++silent == kMostSilent) {
        throw Failure("squeue has not answered for {} looks; the same command goes on", silent);
      }
      continue;
    }
    silent = 0;
    std::erase_if(tasks, [&](Task& task) { return collect(task, *queued, progress); });
  }
}

}  // namespace coppice
