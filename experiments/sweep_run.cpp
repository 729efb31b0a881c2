// See sweep_run.h.
#include "experiments/sweep_run.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/model_file.h"
#include "core/quote.h"
#include "experiments/bench_prompts.h"
#include "experiments/child_process.h"
#include "experiments/manifest.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "experiments/run_rows.h"
#include "experiments/slurm.h"
#include "experiments/statistics.h"
#include "experiments/sweep_estimate.h"
#include "experiments/sweep_report.h"
#include "experiments/toml_source.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using CellRefs = std::vector<const SweepCell*>;

fs::path out_of(const Sweep& sweep, const BenchRequest& request) {
  return request.out.empty() ? fs::path("results") / sweep.name : request.out;
}

const SweepCell& find_cell(const Sweep& sweep, const std::string& hash) {
  for (const SweepCell& cell : sweep.cells) {
    if (cell.hash == hash) return cell;
  }
  throw Error("--cell {}: the sweep has no such cell; --dry-run lists them", quote(hash));
}

/// One cell, in this process.
int run_cell(const Sweep& sweep, const SweepCell& cell, const SweepFolder& folder) {
  const fs::path path = folder.cell(cell.hash);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw Failure("{}: cannot be made: {}", path.string(), error.message());
  const FolderLock lock(path);
  const CellState before = folder.state(cell.hash);
  if (before.status == CellStatus::done) return 0;
  // Memory that is carried cannot be taken up again; what failed is not believed.
  const bool anew = before.status == CellStatus::failed || cell.config.bench.memory == "carried";
  folder.forget_state(cell.hash);
  CellState state;
  const Clock::time_point begin = Clock::now();
  const auto end = [&](CellStatus status, std::string why) {
    state.status = status;
    state.error = std::move(why);
    state.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    folder.set_state(sweep, cell, state);
  };
  try {
    const int code = run_bench(cell.config, path, anew ? Existing::overwrite : Existing::resume);
    if (code == kInterruptedStatus) return code;
    state.drift = baseline_drift(read_rows(path));
    end(code == 0 ? CellStatus::done : CellStatus::failed, code == 0 ? "" : "some answers failed");
    return code;
  } catch (const std::exception& failure) {
    end(CellStatus::failed, escape(failure.what()));
    throw;
  }
}

/// Cells of one table come from one model and, run here, from one machine.
void check_finished(const SweepFolder& folder, const CellRefs& finished, bool here) {
  std::map<fs::path, std::string> hashes;
  const nlohmann::ordered_json machine = describe_machine();
  for (const SweepCell* cell : finished) {
    const auto manifest = read_manifest(folder.cell(cell->hash));
    const auto refuse = [&](const char* what) {
      throw Error("{}: was measured {}; start anew with --overwrite, or name another folder",
                  folder.cell(cell->hash).string(), what);
    };
    if (here && manifest.value("machine", nlohmann::ordered_json()) != machine) {
      refuse("on another machine");
    }
    const fs::path model = find_model(cell->config.model.path, cell->config.folder);
    std::string& hash = hashes[model];
    if (hash.empty()) hash = identify_model(model).sha256;
    if (manifest.at("model").value("sha256", "") != hash) refuse("with another model file");
  }
}

CellCommand command_for(const BenchRequest& request, const fs::path& out) {
  const fs::path program =
      request.program.empty() ? fs::read_symlink("/proc/self/exe") : request.program;
  CellCommand command{{program.string(), "bench", fs::absolute(request.config).string()}};
  for (const std::string& text : request.overrides) {
    command.words.insert(command.words.end(), {"--set", text});
  }
  command.words.insert(command.words.end(), {"--out", fs::absolute(out).string()});
  return command;
}

/// Cells of this machine, a few at a time, each on cores of its own.
class LocalJobs {
 public:
  LocalJobs(const Sweep& sweep, const SweepFolder& folder, CellCommand command, int jobs)
      : sweep_(sweep), folder_(folder), command_(std::move(command)), jobs_(jobs) {}

  void run(const CellRefs& cells, SweepProgress& progress) {
    const std::vector<int> cores = usable_core_list();
    const size_t share = cores.size() / static_cast<size_t>(jobs_);
    {
      std::vector<std::jthread> slots;
      for (size_t slot = 0; slot < static_cast<size_t>(jobs_); ++slot) {
        const auto first = cores.begin() + static_cast<std::ptrdiff_t>(slot * share);
        slots.emplace_back(
            [&, own = std::vector<int>(first, first + static_cast<std::ptrdiff_t>(share))] {
              serve(cells, own, progress);
            });
      }
    }
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void serve(const CellRefs& cells, const std::vector<int>& cores, SweepProgress& progress) {
    while (true) {
      size_t index = 0;
      {
        const std::lock_guard lock(mutex_);
        if (next_ == cells.size() || failure_ || interrupted()) return;
        index = next_++;
      }
      try {
        const ChildResult ran = run_child({.words = command_.for_cell(cells[index]->hash),
                                           .cores = cores,
                                           .show_errors = jobs_ == 1});
        const std::lock_guard lock(mutex_);
        finish(*cells[index], ran, index, progress);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
    }
  }

  void finish(const SweepCell& cell, const ChildResult& ran, size_t index,
              SweepProgress& progress) {
    CellState state = folder_.state(cell.hash);
    if (state.status == CellStatus::waiting) {
      if (interrupted()) return;
      state = {CellStatus::failed, 0, ran.reason(), {}};  // it died before it could say so
      folder_.set_state(sweep_, cell, state);
    }
    folder_.write_report(sweep_);
    progress.ended(cell, index, state);
  }

  const Sweep& sweep_;
  const SweepFolder& folder_;
  CellCommand command_;
  int jobs_;
  std::mutex mutex_;  // guards what follows, the folder's report and the progress
  size_t next_ = 0;
  std::exception_ptr failure_;
};

/// `--jobs N` as a number. Throws Error when the cores do not reach.
int local_jobs(const Sweep& sweep, const std::string& jobs) {
  const OptionValue value = parse_value(jobs);
  const auto* number = std::get_if<int64_t>(&value);
  const auto cores = static_cast<int64_t>(usable_core_list().size());
  if (number == nullptr || *number < 1 || *number > cores) {
    throw Error("--jobs {}: give 1 to {}, the cores there are to share, or slurm", jobs, cores);
  }
  const auto share = cores / *number;
  for (const SweepCell& cell : sweep.cells) {
    if (*number == 1 || cell.config.bench.threads <= share) continue;
    throw Error("--jobs {}: the cell {} asks for {} threads and gets {} cores; give fewer jobs",
                jobs, cell_text(sweep, cell), cell.config.bench.threads, share);
  }
  return static_cast<int>(*number);
}

int finish_sweep(const Sweep& sweep, const SweepFolder& folder) {
  folder.write_report(sweep);
  fmt::print("{}", sweep_table(folder.path()).markdown());
  std::fflush(stdout);
  size_t done = 0, failed = 0;
  for (const SweepCell& cell : sweep.cells) {
    const CellState state = folder.state(cell.hash);
    done += state.status == CellStatus::done;
    if (state.status != CellStatus::failed) continue;
    ++failed;
    fmt::print(stderr, "failed: {} ({}): {}\n", cell_text(sweep, cell), cell.hash, state.error);
  }
  if (interrupted()) {
    fmt::print(stderr, "sweep: interrupted; {} of {} cells are done; the same command goes on\n",
               done, sweep.cells.size());
    return kInterruptedStatus;
  }
  fmt::print(stderr, "sweep: {} of {} cells done{}; report: {}\n", done, sweep.cells.size(),
             failed > 0 ? fmt::format(", {} failed", failed) : "",
             (folder.path() / "report.md").string());
  return failed > 0 ? 1 : 0;
}

}  // namespace

std::vector<std::string> CellCommand::for_cell(const std::string& hash) const {
  std::vector<std::string> all = words;
  all.insert(all.end(), {"--cell", hash});
  return all;
}

SweepProgress::SweepProgress(const Sweep& sweep, size_t finished, std::vector<double> weights)
    : sweep_(sweep), ended_(finished), weights_(std::move(weights)) {
  for (const double weight : weights_) weight_all_ += weight;
}

void SweepProgress::ended(const SweepCell& cell, size_t index, const CellState& state) {
  weight_done_ += weights_[index];
  const double gone = std::chrono::duration<double>(Clock::now() - start_).count();
  const double left = gone * (weight_all_ - weight_done_) / std::max(weight_done_, 1e-9);
  fmt::print(stderr, "sweep: {}/{} cells, {}: {}; {} gone, {} left\n", ++ended_,
             sweep_.cells.size(), cell_text(sweep_, cell),
             state.status == CellStatus::done ? "done" : "FAILED: " + state.error, clock_text(gone),
             clock_text(left));
  std::fflush(stderr);
}

int run_sweep(const Sweep& sweep, const BenchRequest& request) {
  const fs::path out = out_of(sweep, request);
  if (!request.cell.empty()) {
    return run_cell(sweep, find_cell(sweep, request.cell), SweepFolder(out, Existing::resume));
  }
  const bool slurm = request.jobs == "slurm";
  const int jobs = slurm ? 0 : local_jobs(sweep, request.jobs);
  if (request.dry_run) {
    print_estimate(sweep, out, jobs);
    return 0;
  }
  std::vector<double> all_weights;  // reads every workload: a line that is wrong ends it here
  for (const SweepCell& cell : sweep.cells) all_weights.push_back(cell_weight(cell));

  const SweepFolder folder(out, request.existing);
  const FolderLock lock(folder.path());
  CellRefs finished, waiting;
  std::vector<double> weights;
  for (size_t i = 0; i < sweep.cells.size(); ++i) {
    const SweepCell& cell = sweep.cells[i];
    if (folder.state(cell.hash).status == CellStatus::done) {
      finished.push_back(&cell);
    } else {
      waiting.push_back(&cell);
      weights.push_back(all_weights[i]);
    }
  }
  check_finished(folder, finished, !slurm);
  folder.write_report(sweep);
  fmt::print(stderr, "sweep: {} cells, {} done before\n", sweep.cells.size(), finished.size());

  const InterruptGuard guard;
  SweepProgress progress(sweep, finished.size(), std::move(weights));
  const CellCommand command = command_for(request, out);
  if (slurm) {
    SlurmJobs(sweep, folder, command, request.sbatch).run(waiting, progress);
  } else {
    LocalJobs(sweep, folder, command, jobs).run(waiting, progress);
  }
  return finish_sweep(sweep, folder);
}

}  // namespace coppice
