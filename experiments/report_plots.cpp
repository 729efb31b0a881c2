// See report_plots.h.
#include "experiments/report_plots.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "experiments/step_costs.h"

namespace coppice {
namespace {

/// A method of a run, under the colour it has in every plot.
struct Series {
  std::string name;
  const ReportedRun* run;
  const MethodSummary* method;
};

std::vector<Series> all_series(std::span<const ReportedRun> runs) {
  std::vector<Series> out;
  for (const ReportedRun& run : runs) {
    for (const MethodSummary& method : run.summary.methods) {
      out.push_back(
          {runs.size() > 1 ? fmt::format("{}: {}", run.label, method.arm.name) : method.arm.name,
           &run, &method});
    }
  }
  return out;
}

/// "name" 1, "other" 2: tics from 1 on.
std::string tics(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (size_t i = 0; i < names.size(); ++i) {
    out.push_back(fmt::format("{} {}", gnuplot_text(names[i]), i + 1));
  }
  return fmt::format("({})", fmt::join(out, ", "));
}

std::string axis(std::string_view which, std::string_view text) {
  return fmt::format("set {} {} tc rgb {}\n", which, gnuplot_text(text), kInk);
}

/// Rows from the top down, names beside them.
std::string rows_layout(const std::vector<std::string>& names) {
  return fmt::format("set ytics {} scale 0\nset yrange [{}:0.4]\nset grid noytics\n", tics(names),
                     static_cast<double>(names.size()) + 0.6);
}

std::string line_at(double x) {
  return fmt::format("set arrow from {0}, graph 0 to {0}, graph 1 nohead lc rgb {1} dt 2\n", x,
                     kInk);
}

/// Data blocks $d0, $d1, ... and the plot command that draws each in its colour.
class Lines {
 public:
  void add(std::string_view data, size_t colour, const std::string& name, std::string_view style) {
    blocks_ += fmt::format("$d{} << EOD\n{}EOD\n", count_, data);
    plots_.push_back(fmt::format("$d{} {} lc rgb {} title {}", count_, style, series_colour(colour),
                                 gnuplot_text(name)));
    ++count_;
  }
  void add_plain(const std::string& plot) { plots_.push_back(plot); }
  bool empty() const { return count_ == 0; }
  const std::string& blocks() const { return blocks_; }
  std::string command() const { return fmt::format("plot {}\n", fmt::join(plots_, ", \\\n  ")); }
  std::string script() const { return blocks_ + command(); }

 private:
  std::string blocks_;
  std::vector<std::string> plots_;
  int count_ = 0;
};

constexpr std::string_view kWithInterval = "using 1:2:3:4 with xerrorbars pt 7 ps 0.7 lw 2";
constexpr std::string_view kWithPoints = "using 1:2 with linespoints pt 7 ps 0.5 lw 2";

std::string interval_line(const Ratio& ratio, double y) {
  const Interval ci = ratio.ci95.value_or(Interval{ratio.value, ratio.value});
  return fmt::format("{} {} {} {}\n", ratio.value, y, ci.low, ci.high);
}

void add_speedup(std::span<const Series> series, std::vector<Plot>& plots) {
  Lines lines;
  std::vector<std::string> names, says;
  for (size_t i = 0; i < series.size(); ++i) {
    names.push_back(series[i].name);
    if (!series[i].method->speedup) continue;
    const Ratio& ratio = *series[i].method->speedup;
    lines.add(interval_line(ratio, static_cast<double>(i + 1)), i, "", kWithInterval);
    says.push_back(fmt::format("{} {:.2f}", series[i].name, ratio.value));
  }
  if (lines.empty()) return;
  plots.push_back({"speedup", "Speedup over the baseline, 95 % interval",
                   fmt::format("Speedups: {}.", fmt::join(says, ", ")), 720,
                   90 + 26 * static_cast<int>(series.size()),
                   "unset key\n" + rows_layout(names) + line_at(1) + axis("xlabel", "speedup") +
                       lines.script()});
}

void add_categories(std::span<const Series> series, std::vector<Plot>& plots) {
  std::set<std::string> categories;
  for (const Series& s : series) {
    for (const auto& entry : s.method->by_category) categories.insert(entry.first);
  }
  if (categories.size() < 2) return;
  const std::vector<std::string> names(categories.begin(), categories.end());
  Lines lines;
  const double spread = 0.8 / static_cast<double>(series.size());
  for (size_t i = 0; i < series.size(); ++i) {
    std::string data;
    for (size_t row = 0; row < names.size(); ++row) {
      const auto found = series[i].method->by_category.find(names[row]);
      if (found == series[i].method->by_category.end() || !found->second.speedup) continue;
      data += interval_line(*found->second.speedup, static_cast<double>(row) + 0.6 +
                                                        spread * (static_cast<double>(i) + 0.5));
    }
    if (!data.empty()) {
      lines.add(data, i, series[i].name, "using 1:2:3:4 with xerrorbars pt 7 ps 0.5 lw 1.5");
    }
  }
  std::string bands;  // between categories
  for (size_t row = 1; row < names.size(); ++row) {
    bands += fmt::format(
        "set arrow from graph 0, first {0} to graph 1, first {0} nohead lc rgb \"#8a9199\" lw "
        "0.5\n",
        static_cast<double>(row) + 0.5);
  }
  const int rows = static_cast<int>(names.size()), each = static_cast<int>(series.size());
  plots.push_back({"speedup_by_category", "Speedup by category, 95 % interval",
                   "The figures stand in the table by category.", 720,
                   110 + 22 * each + rows * std::max(26, 11 * each),
                   "set key outside bottom center horizontal\n" + rows_layout(names) + bands +
                       line_at(1) + axis("xlabel", "speedup") + lines.script()});
}

void add_draft_length(std::span<const Series> series, std::vector<Plot>& plots) {
  constexpr size_t kMostLength = 16;
  Lines lines;
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<double> accepted;
    double steps = 0;
    for (const PromptRow& row : series[i].run->rows) {
      if (row.arm != series[i].method->arm.name || !row.error.empty()) continue;
      steps += row.steps;
      if (row.accepted_at.size() > accepted.size()) accepted.resize(row.accepted_at.size());
      for (size_t at = 0; at < row.accepted_at.size(); ++at) {
        accepted[at] += static_cast<double>(row.accepted_at[at]);
      }
    }
    if (accepted.empty() || steps == 0) continue;
    double tokens = 1.0;
    std::string data = "0 1\n";
    for (size_t at = 0; at < std::min(accepted.size(), kMostLength); ++at) {
      tokens += accepted[at] / steps;
      data += fmt::format("{} {}\n", at + 1, tokens);
    }
    lines.add(data, i, series[i].name, kWithPoints);
  }
  if (lines.empty()) return;
  plots.push_back(
      {"draft_length", "Tokens per step against draft length",
       "Lines that rise from one token per step and flatten: what each step would have given had "
       "its draft been cut to so many tokens.",
       720, 380,
       "set key outside right top\nset yrange [1:*]\n" +
           axis("xlabel", "draft tokens kept of those verified") +
           axis("ylabel", "tokens per step") + lines.script()});
}

void add_acceptance(std::span<const Series> series, std::vector<Plot>& plots) {
  constexpr size_t kMostPositions = 16;
  constexpr int64_t kLeast = 10;  // judged: fewer say nothing
  Lines lines;
  for (size_t i = 0; i < series.size(); ++i) {
    std::vector<int64_t> reached;
    for (const PromptRow& row : series[i].run->rows) {
      if (row.arm != series[i].method->arm.name || !row.error.empty()) continue;
      if (row.reached_at.size() > reached.size()) reached.resize(row.reached_at.size());
      for (size_t at = 0; at < row.reached_at.size(); ++at) reached[at] += row.reached_at[at];
    }
    std::string data;
    const auto& shares = series[i].method->acceptance_by_position;
    for (size_t at = 0; at < std::min({shares.size(), reached.size(), kMostPositions}); ++at) {
      if (shares[at] && reached[at] >= kLeast) data += fmt::format("{} {}\n", at + 1, *shares[at]);
    }
    if (!data.empty()) lines.add(data, i, series[i].name, kWithPoints);
  }
  if (lines.empty()) return;
  plots.push_back({"acceptance", "Acceptance by draft position",
                   "Of the steps that came to judge a position, the share that accepted it; "
                   "positions judged fewer than ten times are left out. The figures stand in the "
                   "table.",
                   720, 380,
                   "set key outside right top\nset yrange [0:1]\n" +
                       axis("xlabel", "draft position") + axis("ylabel", "accepted") +
                       lines.script()});
}

void add_phases(std::span<const ReportedRun> runs, std::span<const Series> series,
                std::vector<Plot>& plots) {
  std::vector<std::string> names;
  std::string data[4];
  const auto add = [&](const std::string& name, const ArmSummary& arm) {
    if (!arm.phase_ms) return;
    names.push_back(name);
    double from = 0.0;
    const double parts[] = {arm.phase_ms->draft, arm.phase_ms->target, arm.phase_ms->judge,
                            arm.phase_ms->other};
    for (size_t k = 0; k < 4; ++k) {
      data[k] += fmt::format("{0} {1} {0} {2} {3} {4}\n", from, names.size(), from + parts[k],
                             static_cast<double>(names.size()) - 0.36,
                             static_cast<double>(names.size()) + 0.36);
      from += parts[k];
    }
  };
  for (const ReportedRun& run : runs) {
    add(runs.size() > 1 ? run.label + ": baseline" : "baseline", run.summary.baseline);
  }
  for (const Series& s : series) add(s.name, *s.method);
  if (names.empty()) return;
  constexpr std::pair<const char*, size_t> kPhases[] = {
      {"draft", 5}, {"target's pass", 0}, {"judge", 3}, {"rest", 9}};
  Lines lines;
  for (size_t k = 0; k < 4; ++k) {
    lines.add(data[k], kPhases[k].second, kPhases[k].first,
              "using 1:2:3:4:5:6 with boxxyerror fs solid 0.9 noborder");
  }
  plots.push_back({"phases", "Where a step's time goes",
                   "Stacked bars of the milliseconds that a step drafts, runs the target, judges "
                   "and does the rest; the figures stand in the table of steps.",
                   720, 110 + 26 * static_cast<int>(names.size()),
                   "set key outside top center horizontal\nset xrange [0:*]\n" +
                       rows_layout(names) + axis("xlabel", "ms of a step") + lines.script()});
}

void add_costs(std::span<const ReportedRun> runs, std::span<const Series> series,
               std::vector<Plot>& plots) {
  Lines costs, chosen;
  int most = 1;
  for (size_t r = 0; r < runs.size(); ++r) {
    std::string data;
    for (const auto& [rows, cost] : relative_costs(runs[r])) {
      data += fmt::format("{} {}\n", rows, cost);
      most = std::max(most, rows);
    }
    if (!data.empty()) costs.add(data, 9 + r, runs.size() > 1 ? runs[r].label : "", kWithPoints);
  }
  if (costs.empty()) return;
  for (size_t i = 0; i < series.size(); ++i) {
    std::map<int, double> share;
    double steps = 0;
    for (const RecordedStep& step : series[i].run->steps) {
      if (step.arm != series[i].method->arm.name || step.record.prefill) continue;
      share[step.record.rows] += 1.0;
      steps += 1.0;
    }
    std::string data;
    for (const auto& [rows, count] : share) {
      data += fmt::format("{} {}\n", rows, count / steps);
      most = std::max(most, rows);
    }
    if (!data.empty()) chosen.add(data, i, series[i].name, kWithPoints);
  }
  const std::string top = fmt::format("set yrange [1:*]\nset xrange [0.5:{}.5]\n", most) +
                          axis("ylabel", "cost of a pass, of one row's") + costs.blocks();
  if (chosen.empty()) {
    plots.push_back({"costs", "What a pass costs by its rows",
                     "A rising line: the time of a pass over n rows, of the time of one.", 720, 320,
                     "unset key\n" + top + axis("xlabel", "rows of a pass") + costs.command()});
    return;
  }
  plots.push_back(
      {"costs", "What a pass costs by its rows, and the rows that were chosen",
       "Above, a rising line: the time of a pass over n rows, of the time of one. Below, for each "
       "method the share of its steps that had so many rows.",
       720, 520,
       fmt::format("set multiplot layout 2,1\nset lmargin 9\nset rmargin 28\nset key off\n{}{}"
                   "set key at graph 1.02, graph 1 left top Left reverse\nset yrange [0:*]\n{}{}"
                   "{}{}unset multiplot\n",
                   top, costs.command(), axis("ylabel", "share of steps"),
                   axis("xlabel", "rows of a pass"), chosen.blocks(), chosen.command())});
}

void add_predicted(std::span<const Series> series, std::vector<Plot>& plots) {
  Lines lines;
  double low = 1.0, high = 1.0;
  for (size_t i = 0; i < series.size(); ++i) {
    const MethodSummary& method = *series[i].method;
    if (!method.predicted_speedup || !method.speedup) continue;
    const Interval ci =
        method.speedup->ci95.value_or(Interval{method.speedup->value, method.speedup->value});
    low = std::min({low, ci.low, *method.predicted_speedup});
    high = std::max({high, ci.high, *method.predicted_speedup});
    lines.add(fmt::format("{} {} {} {}\n", *method.predicted_speedup, method.speedup->value, ci.low,
                          ci.high),
              i, series[i].name, "using 1:2:3:4 with yerrorbars pt 7 ps 0.7 lw 2");
  }
  if (lines.empty()) return;
  lines.add_plain(
      fmt::format("x with lines lc rgb {} dt 2 lw 1 title \"measured as predicted\"", kInk));
  plots.push_back(
      {"predicted", "Predicted against measured speedup",
       "A point for each method under the budget auto: what the budget expected, and "
       "what was measured with its 95 % interval; the figures stand in the table of the "
       "budget's choices.",
       720, 420,
       fmt::format("set key outside right top\nset xrange [{0}:{1}]\nset yrange [{0}:{1}]\n",
                   low - 0.05, high + 0.05) +
           axis("xlabel", "predicted by the budget") + axis("ylabel", "measured") +
           lines.script()});
}

void add_quality(std::span<const ReportedRun> runs, std::vector<Plot>& plots) {
  const auto any = [&](std::optional<double> QualityPoint::*figure) {
    return std::any_of(runs.begin(), runs.end(), [&](const ReportedRun& run) {
      return std::any_of(run.quality.begin(), run.quality.end(),
                         [&](const QualityPoint& point) { return (point.*figure).has_value(); });
    });
  };
  // The task's score says most, likelihood less, likeness least: the first that there is.
  const bool scored = any(&QualityPoint::score), rated = any(&QualityPoint::nll);
  Lines lines;
  size_t colour = 0;
  for (const ReportedRun& run : runs) {
    for (const QualityPoint& point : run.quality) {
      const std::optional<double> worth = scored  ? point.score
                                          : rated ? point.nll
                                                  : std::optional<double>(point.identical);
      const std::string name =
          runs.size() > 1 ? fmt::format("{}: {}", run.label, point.arm) : point.arm;
      const size_t own = colour++;
      if (!point.speedup || !worth) continue;
      lines.add(fmt::format("{} {}\n", *point.speedup, *worth), own, name,
                "using 1:2 with points pt 7 ps 0.9");
    }
  }
  if (lines.empty()) return;
  plots.push_back({"quality", "Quality against speed",
                   "A point for each method: to the right what is faster; the figures stand in "
                   "quality.md of the run.",
                   720, 420,
                   "set key outside right top\nset offsets graph 0.05, graph 0.05, graph 0.05, "
                   "graph 0.05\n" +
                       axis("xlabel", "speedup") +
                       axis("ylabel", scored  ? "score of the task"
                                      : rated ? "nats a token under the target (less is better)"
                                              : "share of answers that are the baseline's") +
                       lines.script()});
}

std::string percentile_line(const Percentiles& p, size_t y) {
  if (!p.p50) return "";
  return fmt::format("{} {} {} {}\n", *p.p50, y, *p.p90, *p.p99);
}

void add_latency(std::span<const ReportedRun> runs, std::span<const Series> series,
                 std::vector<Plot>& plots) {
  std::vector<std::string> names;
  std::string data[3];  // TTFT, TPOT, step
  const auto add = [&](const std::string& name, const ReportedRun& run, const ArmSummary& arm) {
    names.push_back(name);
    std::vector<double> steps;
    for (const RecordedStep& step : run.steps) {
      if (step.arm == arm.arm.name && !step.record.prefill) steps.push_back(total_ms(step.record));
    }
    data[0] += percentile_line(arm.ttft_ms, names.size());
    data[1] += percentile_line(arm.tpot_ms, names.size());
    data[2] += percentile_line(percentiles(steps), names.size());
  };
  for (const ReportedRun& run : runs) {
    add(runs.size() > 1 ? run.label + ": baseline" : "baseline", run, run.summary.baseline);
  }
  for (const Series& s : series) add(s.name, *s.run, *s.method);
  constexpr const char* kWhat[] = {"time to first token, ms", "time per token, ms", "step, ms"};
  std::string script;
  int panels = 0;
  for (size_t k = 0; k < 3; ++k) {
    if (data[k].empty()) continue;
    script += fmt::format(
        "$l{0} << EOD\n{1}EOD\n{2}{3}plot $l{0} using 1:2:($4-$1):(0) with vectors nohead lw 2 lc "
        "rgb {4} notitle, $l{0} using 1:2 with points pt 7 ps 0.7 lc rgb {4} title \"p50\", $l{0} "
        "using 3:2 with points pt 6 ps 0.7 lw 2 lc rgb {4} title \"p90\", $l{0} using 4:2 with "
        "points pt 2 ps 0.8 lw 2 lc rgb {4} title \"p99\"\nset key off\n",
        k, data[k], rows_layout(names), axis("xlabel", kWhat[k]), series_colour(0));
    ++panels;
  }
  if (panels == 0) return;
  const int height = 90 + 24 * static_cast<int>(names.size());
  plots.push_back(
      {"latency", "Latency: median, 90th and 99th percentile",
       "For each method the percentiles of the time to the first token, the time per token and the "
       "time of a step; those of the first two stand in the table.",
       720, 40 + panels * height,
       fmt::format("set multiplot layout {},1\nset lmargin 26\nset key outside top center "
                   "horizontal\nset xrange [0:*]\n{}unset multiplot\n",
                   panels, script)});
}

}  // namespace

std::vector<Plot> report_plots(std::span<const ReportedRun> runs) {
  const std::vector<Series> series = all_series(runs);
  std::vector<Plot> plots;
  add_speedup(series, plots);
  add_categories(series, plots);
  add_draft_length(series, plots);
  add_acceptance(series, plots);
  add_phases(runs, series, plots);
  add_costs(runs, series, plots);
  add_predicted(series, plots);
  add_quality(runs, plots);
  add_latency(runs, series, plots);
  return plots;
}

}  // namespace coppice
