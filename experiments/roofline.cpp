// See roofline.h. All figures of a round are measured one after the other, and rounds follow each
// other, so that a disturbance of the machine meets all of them alike.
#include "experiments/roofline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "experiments/decoder.h"
#include "experiments/machine_limits.h"
#include "experiments/manifest.h"
#include "experiments/statistics.h"
#include "experiments/step_timer.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;

constexpr int kPasses = 5;  // of a buffer and pattern, and of a compute probe
// Steps that are timed, after some that are not: a step finds its weights in the caches as the same
// step left them, as in decoding.
constexpr int kRepeats = 5;
constexpr int kWarmups = 3;
constexpr int kSplitRows[] = {1, 16};  // steps whose parts are timed

/// Three digits behind the point are enough for every unit here, and keep the record readable.
double rounded(double value) {
  return std::round(value * 1000.0) / 1000.0;
}

ordered_json middle_json(std::span<const double> values, double scale = 1.0) {
  const Middle middle = middle_of(values);
  return {{"median", rounded(scale * middle.median)},
          {"low", rounded(scale * middle.ci95.low)},
          {"high", rounded(scale * middle.ci95.high)}};
}

ordered_json read_json(const ReadSpeed& speed) {
  return {{"bytes", speed.bytes},
          {"best_gb_per_s", rounded(speed.best / 1e9)},
          {"median_gb_per_s", rounded(speed.median / 1e9)},
          {"streams", speed.pattern.streams},
          {"ahead", speed.pattern.ahead}};
}

/// What the rounds gave for one context and number of rows.
struct Samples {
  std::vector<double> seconds, cost, read_share;
  std::vector<double> products, norms, attention, outside;  // outside: a share of the step
  StepWork work;
};

/// Median of what is measured again and again.
template <class Measure>
double repeated(const Measure& measure) {
  std::vector<double> values;
  for (int i = -kWarmups; i < kRepeats; ++i) {
    const double value = measure();
    if (i >= 0) values.push_back(value);
  }
  return middle_of(values).median;
}

class ModelRounds {
 public:
  ModelRounds(const Model& model, OpListener& backend, MachineLimits& limits,
              const RooflineRequest& request)
      : limits_(limits), rows_(request.rows) {
    rows_.push_back(1);  // c(n) needs it
    std::sort(rows_.begin(), rows_.end());
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
    for (const int context : request.contexts) {
      (context + rows_.back() <= model.context() ? contexts_ : too_long_).push_back(context);
    }
    if (contexts_.empty()) {
      throw Error("--contexts: the model has {} positions, too few for any of them and {} rows",
                  model.context(), rows_.back());
    }
    timer_.emplace(model, backend, *std::max_element(contexts_.begin(), contexts_.end()),
                   rows_.back());
    read_ = limits.read(model.weight_bytes(), kPasses);
  }

  void run_round() {
    for (const int context : contexts_) {
      timer_->set_context(context);
      double one_row = 0.0;
      for (const int rows : rows_) {
        Samples& to = samples_[{context, rows}];
        if (to.seconds.empty()) to.work = timer_->work(rows);
        const double seconds = repeated([&] { return timer_->step(rows); });
        if (rows == 1) {
          one_row = seconds;
          const double speed =
              repeated([&] { return limits_.read_once(read_.bytes, read_.pattern); });
          to.read_share.push_back(to.work.bytes / seconds / speed);
        }
        to.seconds.push_back(seconds);
        to.cost.push_back(seconds / one_row);
        if (std::find(std::begin(kSplitRows), std::end(kSplitRows), rows) != std::end(kSplitRows)) {
          add_parts(to, rows);
        }
      }
    }
  }

  ordered_json record(double multiply_add, double dot) const {
    ordered_json out = {{"read", read_json(read_)}, {"contexts_left_out", too_long_}};
    for (const auto& [key, s] : samples_) {
      const double memory = s.work.bytes / read_.median;
      const double arithmetic =
          s.work.product_operations / dot + s.work.attention_operations / multiply_add;
      const double limit = std::max(memory, arithmetic);
      ordered_json step = {{"context", key.first},
                           {"rows", key.second},
                           {"ms", middle_json(s.seconds, 1e3)},
                           {"cost", middle_json(s.cost)},
                           {"bytes", s.work.bytes},
                           {"operations", s.work.product_operations + s.work.attention_operations},
                           {"limit_ms", rounded(1e3 * limit)},
                           {"limited_by", memory > arithmetic ? "memory" : "arithmetic"},
                           {"share_of_limit", rounded(limit / middle_of(s.seconds).median)}};
      if (!s.read_share.empty()) step["share_of_read_bandwidth"] = middle_json(s.read_share);
      if (!s.products.empty()) {
        std::vector<double> rows_per_s;
        for (const double seconds : s.products) rows_per_s.push_back(key.second / seconds);
        step["parts"] = {{"products_ms", middle_json(s.products, 1e3)},
                         {"norms_ms", middle_json(s.norms, 1e3)},
                         {"attention_ms", middle_json(s.attention, 1e3)},
                         {"share_outside_products_and_attention", middle_json(s.outside)},
                         {"products_rows_per_s", middle_json(rows_per_s)}};
      }
      out["steps"].push_back(std::move(step));
    }
    return out;
  }

 private:
  void add_parts(Samples& to, int rows) {
    const StepParts parts = timer_->parts(rows, kRepeats);
    to.products.push_back(parts.products);
    to.norms.push_back(parts.norms);
    to.attention.push_back(parts.attention);
    to.outside.push_back(1.0 - (parts.products + parts.attention) / parts.step);
  }

  MachineLimits& limits_;
  std::vector<int> contexts_, rows_, too_long_;
  std::optional<StepTimer> timer_;
  ReadSpeed read_;
  std::map<std::pair<int, int>, Samples> samples_;  // by context and rows
};

}  // namespace

ordered_json measure_roofline(const RooflineRequest& request) {
  OpListener backend(make_backend(request.machine));
  std::optional<LoadedModel> loaded;
  if (!request.model.empty()) loaded = load_model(request.model, backend);
  size_t most_bytes = loaded ? loaded->model->weight_bytes() : 0;
  for (const int mib : request.read_mib) most_bytes = std::max(most_bytes, size_t(mib) << 20);
  MachineLimits limits(request.machine, std::max(most_bytes, size_t{1} << 20));

  ordered_json out = {{"schema", 1},
                      {"machine", describe_machine()},
                      {"backend", backend.describe()},
                      {"rounds", request.rounds}};
  const double multiply_add = limits.multiply_add(kPasses);
  const double dot = limits.dot(kPasses);
  out["fp32_gflop_per_s"] = rounded(multiply_add / 1e9);
  out["int8_gop_per_s"] = rounded(dot / 1e9);
  out["reads"] = ordered_json::array();
  for (const int mib : request.read_mib) {
    out["reads"].push_back(read_json(limits.read(size_t(mib) << 20, kPasses)));
  }
  if (loaded) {
    out["model"] = describe_model(*loaded);
    out["model"]["weight_bytes"] = loaded->model->weight_bytes();
    ModelRounds rounds(*loaded->model, backend, limits, request);
    for (int round = 0; round < request.rounds; ++round) rounds.run_round();
    out.update(rounds.record(multiply_add, dot));
  }
  return out;
}

}  // namespace coppice
