// See sweep_estimate.h.
#include "experiments/sweep_estimate.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "experiments/bench_prompts.h"
#include "experiments/model_files.h"
#include "experiments/progress.h"
#include "experiments/statistics.h"
#include "experiments/step_timer.h"
#include "experiments/sweep_folder.h"

namespace coppice {
namespace {

constexpr int kRepeats = 5;
constexpr int kPromptRows = 64;      // of a prefill's pass
constexpr double kStartSeconds = 3;  // loading, the cost curve, warm-up

/// Seconds a token takes.
struct Pace {
  double decoded = 0, read = 0;
};

class Paces {
 public:
  /// `prompts` are encoded on the way.
  Pace of(const BenchConfig& config, std::vector<Prompt>& prompts) {
    const auto key = std::tuple(config.model.path, config.bench.backend, config.bench.target,
                                config.bench.threads);
    Timed& timed = timed_[key];
    if (timed.backend == nullptr) measure(config, timed);
    encode_prompts(prompts, *timed.loaded.tokenizer, config.bench.raw);
    return timed.pace;
  }

 private:
  struct Timed {
    std::unique_ptr<OpListener> backend;
    LoadedModel loaded;
    Pace pace;
  };

  static double median_of_steps(StepTimer& timer, int rows) {
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) seconds.push_back(timer.step(rows));
    return *percentile(seconds, 0.5);
  }

  static void measure(const BenchConfig& config, Timed& timed) {
    timed.backend = std::make_unique<OpListener>(make_backend(config.bench.machine()));
    timed.loaded = load_model(find_model(config.model.path, config.folder), *timed.backend);
    const int rows = std::min(kPromptRows, timed.loaded.model->context() / 2);
    StepTimer timer(*timed.loaded.model, *timed.backend, rows, rows);
    timer.set_context(rows);
    timer.step(rows);
    timed.pace = {median_of_steps(timer, 1), median_of_steps(timer, rows) / rows};
  }

  std::map<std::tuple<std::string, std::string, std::string, int>, Timed> timed_;
};

/// Each arm is taken for as fast as the baseline: what drafts gain is not known before.
double seconds_of(const BenchConfig& config, std::span<const Prompt> prompts, const Pace& pace) {
  double seconds = 0;
  for (const Prompt& prompt : prompts) {
    seconds += static_cast<double>(prompt.ids.size()) * pace.read +
               config.bench.max_new_tokens * pace.decoded;
  }
  return kStartSeconds + seconds * static_cast<double>(config.methods.size() + 1);
}

}  // namespace

double cell_weight(const SweepCell& cell) {
  return static_cast<double>(load_prompts(cell.config).size() * (cell.config.methods.size() + 1)) *
         cell.config.bench.max_new_tokens;
}

void print_estimate(const Sweep& sweep, const std::filesystem::path& out, int jobs) {
  Paces paces;
  double left = 0, longest = 0;
  size_t waiting = 0;
  const bool begun = holds_sweep(out);
  for (const SweepCell& cell : sweep.cells) {
    CellState state;
    if (begun) state = SweepFolder(out, Existing::resume).state(cell.hash);
    std::string says;
    if (state.status == CellStatus::done) {
      says = fmt::format("done, took {}", clock_text(state.seconds));
    } else {
      std::vector<Prompt> prompts = load_prompts(cell.config);
      const Pace pace = paces.of(cell.config, prompts);
      const double seconds = seconds_of(cell.config, prompts, pace);
      left += seconds;
      longest = std::max(longest, seconds);
      ++waiting;
      says = fmt::format("{}about {}", state.status == CellStatus::failed ? "failed before, " : "",
                         clock_text(seconds));
    }
    fmt::print("{}  {}: {}\n", cell.hash, cell_text(sweep, cell), says);
  }
  fmt::print("{} cells, {} to run: about {}\n", sweep.cells.size(), waiting,
             clock_text(std::max(left / std::max(jobs, 1), longest)));
}

}  // namespace coppice
