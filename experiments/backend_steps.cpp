// See backend_steps.h. A round measures everything once, so that a disturbance meets all alike.
#include "experiments/backend_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/decoder.h"
#include "experiments/manifest.h"
#include "experiments/statistics.h"
#include "experiments/step_timer.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kCopyRows = 1 << 14, kCopyDim = 1 << 12;  // 256 MiB read, as many written
constexpr int kWarmups = 4;                             // a graph is made at the second
constexpr int kRepeats = 10;

/// Bytes a second, read and written, of a copy from one large buffer to another.
class CopySpeed {
 public:
  explicit CopySpeed(Backend& backend)
      : backend_(backend), from_(backend.allocate(kBytes)), to_(backend.allocate(kBytes)) {
    measure();
  }
  double measure() {
    const Op op[] = {
        Copy{from_.as<float>(), kCopyDim, kCopyRows, kCopyDim, to_.as<float>(), kCopyDim}};
    const Clock::time_point start = Clock::now();
    backend_.run(op);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return 2.0 * kBytes / seconds;
  }

 private:
  static constexpr size_t kBytes = size_t{4} * kCopyRows * kCopyDim;
  Backend& backend_;
  Buffer from_, to_;
};

double median_step(StepTimer& timer, int rows) {
  std::vector<double> seconds;
  for (int i = -kWarmups; i < kRepeats; ++i) {
    const double step = timer.step(rows);
    if (i >= 0) seconds.push_back(step);
  }
  return middle_of(seconds).median;
}

}  // namespace

ordered_json measure_backend_steps(const RooflineRequest& request) {
  if (request.model.empty()) {
    throw Error("--backend {}: give a model, whose steps are timed", request.machine.name);
  }
  OpListener backend(make_backend(request.machine));
  const LoadedModel loaded = load_model(request.model, backend);
  std::vector<int> rows = request.rows, contexts;
  rows.push_back(1);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  for (const int context : request.contexts) {
    if (context + rows.back() <= loaded.model->context()) contexts.push_back(context);
  }
  if (contexts.empty()) {
    throw Error("--contexts: the model has {} positions, too few for any of them and {} rows",
                loaded.model->context(), rows.back());
  }
  StepTimer timer(*loaded.model, backend, *std::max_element(contexts.begin(), contexts.end()),
                  rows.back());
  CopySpeed copy(backend);
  std::vector<double> copied;
  std::map<std::pair<int, int>, std::vector<double>> seconds;  // by context and rows
  std::map<std::pair<int, int>, double> bytes;
  for (int round = 0; round < request.rounds; ++round) {
    copied.push_back(copy.measure());
    for (const int context : contexts) {
      timer.set_context(context);
      for (const int n : rows) {
        seconds[{context, n}].push_back(median_step(timer, n));
        bytes[{context, n}] = timer.work(n).bytes;
      }
    }
  }
  const double speed = middle_of(copied).median;
  ordered_json out = {{"schema", 1},
                      {"machine", describe_machine()},
                      {"backend", backend.describe()},
                      {"rounds", request.rounds},
                      {"copy_gb_per_s", speed / 1e9},
                      {"model", describe_model(loaded)}};
  for (const auto& [key, values] : seconds) {
    const double step = middle_of(values).median;
    out["steps"].push_back({{"context", key.first},
                            {"rows", key.second},
                            {"ms", 1e3 * step},
                            {"cost", step / middle_of(seconds.at({key.first, 1})).median},
                            {"bytes", bytes.at(key)},
                            {"share_of_copy_bandwidth", bytes.at(key) / step / speed}});
  }
  return out;
}

std::string backend_steps_text(const ordered_json& record) {
  std::string out = fmt::format(
      "{}: copies at {:.0f} GB/s, read and written\n{:>8} {:>6} {:>9} {:>6} {:>9} {:>8}\n",
      record.at("backend").get<std::string>(), record.at("copy_gb_per_s").get<double>(), "context",
      "rows", "ms", "c(n)", "rows/s", "of copy");
  for (const ordered_json& step : record.at("steps")) {
    const double ms = step.at("ms");
    const int rows = step.at("rows");
    out += fmt::format("{:>8} {:>6} {:>9.3f} {:>6.2f} {:>9.0f} {:>6.0f} %\n",
                       step.at("context").get<int>(), rows, ms, step.at("cost").get<double>(),
                       1e3 * rows / ms, 100 * step.at("share_of_copy_bandwidth").get<double>());
  }
  return out;
}

}  // namespace coppice
