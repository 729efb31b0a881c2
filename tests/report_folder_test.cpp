// A report's folder from runs with known figures: what the CSV files say, Spec-Bench's speedup, and
// pages and plots that are whole and load nothing.
#include "experiments/report_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "experiments/gnuplot.h"
#include "experiments/report_csv.h"
#include "experiments/report_plots.h"
#include "experiments/run_folder.h"
#include "experiments/step_costs.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

/// A step of `rows` rows, all but one of them drafts; its pass takes 4 ms and 1 ms a draft.
StepRecord step(int rows, int emitted) {
  StepRecord s;
  s.rows = rows;
  s.drafted = rows - 1;
  s.reached = std::min(s.drafted, emitted);
  s.accepted = emitted - 1;
  s.emitted = emitted;
  s.target_ms = 4.0 + (rows - 1);
  s.draft_ms = rows > 1 ? 0.5 : 0.0;
  return s;
}

ReportedRun scripted_run(const std::string& label, const std::string& method) {
  ReportedRun run;
  run.label = label;
  run.manifest = {
      {"model", {{"name", "toy"}, {"file", "toy.gguf"}}},
      {"machine", {{"cpu", "abacus"}}},
      {"backend", "reference, 1 thread"},
      {"config",
       {{"bench", {{"name", label}, {"max_new_tokens", 7}, {"batch", 1}, {"memory", "fresh"}}},
        {"sampling", {{"temperature", 0.0}}}}},
      {"prompts", {"a", "b"}}};
  const auto add = [&](const std::string& prompt, const std::string& category,
                       const std::string& arm, int rows, int emitted, double ttft_ms) {
    PromptRow row;
    row.prompt = prompt;
    row.category = category;
    row.arm = arm;
    row.ids.push_back(1);
    row.ttft_ms = ttft_ms;
    for (int tokens = 0; tokens < 6; tokens += emitted) {
      const StepRecord s = step(rows, emitted);
      add_step(row, s);
      run.steps.push_back({prompt, arm, s});
      row.ids.insert(row.ids.end(), static_cast<size_t>(emitted), 1);
    }
    row.latency_ms = row.decode_ms;
    run.rows.push_back(row);
  };
  add("a", "translation", "baseline", 1, 1, 10);  // 7 tokens in 34 ms
  add("b", "qa", "baseline", 1, 1, 40);           // 7 in 64
  add("a", "translation", method, 3, 3, 10);      // 7 in 23
  add("b", "qa", method, 2, 2, 40);               // 7 in 56.5
  const std::vector<ArmInfo> arms = {{"baseline", "autoregressive", "greedy"},
                                     {method, "prompt_lookup", "greedy"}};
  run.summary = summarise(run.rows, arms);
  return run;
}

TEST(Report, SpecBenchSpeedupIsTheRatioOfMeansOverQuestions) {
  const auto found = spec_bench_speedups(scripted_run("x", "lookup"));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].task, "translation");
  EXPECT_NEAR(found[0].value, 34.0 / 23.0, 1e-9);
  EXPECT_EQ(found[2].task, "overall");
  EXPECT_NEAR(found[2].value, (7 / 23.0 + 7 / 56.5) / (7 / 34.0 + 7 / 64.0), 1e-9);
}

TEST(Report, SpecBenchTakesTheTurnsOfAQuestionTogether) {
  ReportedRun run = scripted_run("x", "lookup");
  for (PromptRow& row : run.rows) {
    row.category = "mt-bench";
    row.prompt = row.prompt == "a" ? "mt-bench-81" : "mt-bench-81#2";
  }
  const auto found = spec_bench_speedups(run);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[1].value, (14 / 79.5) / (14 / 98.0), 1e-9);
}

TEST(Report, SpecBenchSpeedupIsForItsOwnTasksAlone) {
  ReportedRun run = scripted_run("x", "lookup");
  for (PromptRow& row : run.rows) row.category = "qa";  // a name that others use too
  EXPECT_TRUE(spec_bench_speedups(run).empty());
  run.rows[0].category = "translation";
  EXPECT_FALSE(spec_bench_speedups(run).empty());
  run.rows[1].category = "rewrite";
  EXPECT_TRUE(spec_bench_speedups(run).empty());
}

TEST(Report, CostsAreMediansOfRecordedPasses) {
  ReportedRun run = scripted_run("x", "lookup");
  // Two of 3 rows are too few; three of 2 rows as well; twelve of one row.
  EXPECT_THAT(relative_costs(run), UnorderedElementsAre(Pair(1, 1.0)));
  for (int i = 0; i < 5; ++i) run.steps.push_back({"a", "lookup", step(3, 1)});
  EXPECT_THAT(relative_costs(run), UnorderedElementsAre(Pair(1, 1.0), Pair(3, 1.5)));
  run.steps.clear();  // then the budget's own curve
  run.rows[2].pass_ms = {2.0, 3.0};
  EXPECT_THAT(relative_costs(run), UnorderedElementsAre(Pair(1, 1.0), Pair(2, 1.5)));
}

TEST(Report, CsvHoldsOneFigureACell) {
  const std::vector<ReportedRun> runs = {scripted_run("one", "lookup, all"),
                                         scripted_run("a \"b\"", "lookup")};
  const auto files = report_csv(runs);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].name, "methods.csv");
  EXPECT_THAT(files[0].text, HasSubstr("\none,baseline,autoregressive,greedy,yes,2,1,,,"));
  EXPECT_THAT(files[0].text, HasSubstr("\none,\"lookup, all\",prompt_lookup,greedy,yes,2,"));
  EXPECT_THAT(files[0].text, HasSubstr("\n\"a \"\"b\"\"\",lookup,"));
  // As many cells in every line as in the header.
  std::istringstream lines(files[0].text);
  std::string header, line;
  std::getline(lines, header);
  while (std::getline(lines, line)) {
    const auto commas = [](const std::string& text) {
      int count = 0;
      bool quoted = false;
      for (const char c : text) {
        quoted = quoted != (c == '"');
        count += c == ',' && !quoted;
      }
      return count;
    };
    EXPECT_EQ(commas(line), commas(header)) << line;
  }
  EXPECT_THAT(files[1].text,
              HasSubstr("a \"\"b\"\"\",lookup,translation,1,1.8461538461538463,,,3"));
  EXPECT_THAT(files[2].text, HasSubstr("one,\"lookup, all\",1,1\n"));
  EXPECT_THAT(files[3].text, HasSubstr(",overall,"));
}

class ReportFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v gnuplot > /dev/null 2>&1") != 0) {
      if (std::getenv("CI") != nullptr) FAIL() << "gnuplot is missing";
      GTEST_SKIP() << "gnuplot is missing: apt-get install gnuplot-nox";
    }
    folder_ = fs::temp_directory_path() / fs::path("coppice-report's-" + std::to_string(getpid()));
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(ReportFolder, HoldsPageTablesAndPlots) {
  std::vector<ReportedRun> runs = {scripted_run("one", "a \"quoted\" \\ <name>"),
                                   scripted_run("two", "lookup")};
  runs[1].quality = {{"lookup", 1.5, std::nullopt, 2.25, 0.5}};
  write_report_folder(runs, folder_);
  EXPECT_THAT(read_whole_file(folder_ / "plots" / "plots.gp"), HasSubstr("\n1.5 2.25\n"));
  const std::string page = read_whole_file(folder_ / "report.html");
  const std::string markdown = read_whole_file(folder_ / "report.md");
  for (const Plot& plot : report_plots(runs)) {
    const std::string svg = read_whole_file(folder_ / "plots" / (plot.name + ".svg"));
    EXPECT_THAT(svg, HasSubstr("currentColor"));
    EXPECT_THAT(svg, HasSubstr("<title id=\"" + plot.name + "-title\">"));
    EXPECT_THAT(svg, Not(HasSubstr("rgb(1,2,3)")));
    EXPECT_THAT(svg, Not(HasSubstr("'#gp")));  // ids of its own, or plots of one page would mix
    EXPECT_THAT(page, HasSubstr(plot.title));
    EXPECT_THAT(markdown, HasSubstr("plots/" + plot.name + ".svg"));
  }
  EXPECT_THAT(page, HasSubstr("a &quot;quoted&quot; \\ &lt;name&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(markdown, HasSubstr("| run | task | method | Spec-Bench's speedup | ours |"));
  EXPECT_TRUE(fs::exists(folder_ / "tables" / "methods.tex"));
  EXPECT_TRUE(fs::exists(folder_ / "tables" / "2_steps.tex"));
  EXPECT_TRUE(fs::exists(folder_ / "tables" / "spec_bench.csv"));
}

TEST_F(ReportFolder, WhatGnuplotSaysIsHandedOn) {
  const std::vector<Plot> plots = {{"x", "X", "an x", 100, 100, "plot nonsense(\n"}};
  try {
    draw_plots(folder_, plots);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("plots.gp"));
  }
}

TEST(Gnuplot, TextsAreQuoted) {
  EXPECT_EQ(gnuplot_text("a \"b\" \\c\nd"), "\"a \\\"b\\\" \\\\c d\"");
}

}  // namespace
}  // namespace coppice
