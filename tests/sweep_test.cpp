// Sweeps: axes to cells, and cells to runs that survive failures, kills and full disks.
#include "experiments/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "experiments/bench.h"
#include "experiments/child_process.h"
#include "experiments/sweep_folder.h"
#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/tiny_model_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::error_of;
using test::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kMethods =
    "[[method]]\nmethod = 'prompt_lookup'\n[[method]]\nname = 'j'\nmethod = 'jacobi'\n";

Sweep sweep_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return make_sweep(parse_toml(kMethods + text, "s.toml"), overrides, "s", "").value();
}
std::string sweep_error(const std::string& text) {
  return error_of([&] { sweep_of(text); });
}
std::vector<std::string> texts_of(const Sweep& sweep) {
  std::vector<std::string> texts;
  for (const SweepCell& cell : sweep.cells) texts.push_back(cell_text(sweep, cell));
  return texts;
}

TEST(Sweep, AConfigWithoutTheTableIsNone) {
  EXPECT_FALSE(make_sweep(parse_toml(kMethods, "s.toml"), {}, "s", ""));
}

TEST(Sweep, AxesAreCrossedTheLastTurningFastest) {
  const Sweep sweep = sweep_of("[sweep]\ndraft_length = [1, 2]\nsampling.temperature = [0, 0.5]\n");
  EXPECT_THAT(texts_of(sweep), ElementsAre("draft_length=1, sampling.temperature=0",
                                           "draft_length=1, sampling.temperature=0.5",
                                           "draft_length=2, sampling.temperature=0",
                                           "draft_length=2, sampling.temperature=0.5"));
  const BenchConfig& last = sweep.cells[3].config;
  EXPECT_EQ(last.sampling.values.temperature, 0.5f);
  EXPECT_EQ(last.methods[0].spec.rule, "coupled");
  EXPECT_EQ(std::get<int64_t>(last.methods[1].spec.options[0].value), 2);  // every method's
}

TEST(Sweep, ZippedAxesStepTogether) {
  const Sweep sweep =
      sweep_of("[sweep]\ncombine = 'zip'\nbatch = [1, 4]\nmax_new_tokens = [64, 16]\n");
  EXPECT_THAT(texts_of(sweep),
              ElementsAre("batch=1, max_new_tokens=64", "batch=4, max_new_tokens=16"));
  EXPECT_THAT(sweep_error("[sweep]\ncombine = 'zip'\nbatch = [1, 4]\nthreads = [1]\n"),
              HasSubstr("s.toml:9: 'threads': has 1 values where 'batch' has 2"));
}

TEST(Sweep, ExcludedCellsAreLeftOut) {
  const Sweep sweep = sweep_of(
      "[sweep]\nbatch = [1, 2]\ntemperature = [0, 1]\n"
      "exclude = ['batch=2 and temperature=1', 'temperature=0 and batch=1']\n");
  EXPECT_THAT(texts_of(sweep), ElementsAre("batch=1, temperature=1", "batch=2, temperature=0"));
  EXPECT_THAT(sweep_error("[sweep]\nbatch = [1]\nexclude = ['batch=3']\n"),
              HasSubstr("'3' is no value of batch; there are: 1"));
  EXPECT_THAT(sweep_error("[sweep]\nbatch = [1]\nexclude = ['threads=1']\n"),
              HasSubstr("names no axis"));
  EXPECT_THAT(sweep_error("[sweep]\nbatch = [1]\nexclude = ['batch=1']\n"),
              HasSubstr("every cell is excluded"));
}

TEST(Sweep, TheMethodAxisTakesLabels) {
  const Sweep sweep = sweep_of("[sweep]\nmethod = ['j', 'prompt_lookup']\n");
  ASSERT_EQ(sweep.cells.size(), 2u);
  ASSERT_EQ(sweep.cells[0].config.methods.size(), 1u);
  EXPECT_EQ(sweep.cells[0].config.methods[0].spec.method, "jacobi");
  EXPECT_THAT(sweep_error("[sweep]\nmethod = ['promt_lookup']\n"),
              HasSubstr("did you mean 'prompt_lookup'?"));
}

TEST(Sweep, OneMethodsOptionsListsAndWordsAreValues) {
  const Sweep sweep = sweep_of(
      "[[method]]\nname = 'd'\nmethod = 'draft_model'\n[model]\ndraft = 'x'\n"
      "[sweep]\n'method.d.branching' = [[1, 1], [2, 2, 1]]\nbudget = ['auto', '3']\n");
  ASSERT_EQ(sweep.cells.size(), 4u);
  const MethodSpec& spec = sweep.cells[3].config.methods[2].spec;
  EXPECT_EQ(spec.budget, 3);
  EXPECT_EQ(std::get<std::vector<int64_t>>(spec.options[0].value), (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(sweep.cells[0].config.methods[0].spec.budget, kBudgetAuto);
}

TEST(Sweep, CellsThatResolveToOneConfigAreOne) {
  // Jacobi's cells do not see prompt_lookup's option.
  const Sweep sweep = sweep_of(
      "[sweep]\nmethod = ['j', 'prompt_lookup']\n'method.prompt_lookup.max_ngram' = [2, 3]\n");
  EXPECT_EQ(sweep.cells.size(), 3u);
}

TEST(Sweep, AHashIsOfTheResolvedConfigAlone) {
  const Sweep sweep = sweep_of("[sweep]\nbatch = [1, 2]\n");
  // A default written out, another axis beside it, another name: the same cells.
  const Sweep other =
      sweep_of("[bench]\nname = 'n'\nwarmup = 1\n[sweep]\nthreads = 0\nbatch = [2]\n");
  EXPECT_EQ(other.name, "n");
  EXPECT_EQ(other.cells[0].hash, sweep.cells[1].hash);
  EXPECT_NE(sweep.cells[0].hash, sweep.cells[1].hash);
  EXPECT_EQ(sweep.cells[0].hash.size(), 12u);
}

TEST(Sweep, OverridesReachAxesAndCells) {
  const Sweep sweep =
      sweep_of("[sweep]\nbatch = [1, 2]\n",
               {"sweep.batch=[4]", "sweep.method.draft_length=[3]", "bench.seed=9"});
  EXPECT_THAT(texts_of(sweep), ElementsAre("batch=4, method.draft_length=3"));
  EXPECT_EQ(sweep.cells[0].config.bench.seed, 9u);
  EXPECT_EQ(sweep_of("", {"sweep.threads=[1, 2]"}).cells.size(), 2u);
}

TEST(Sweep, MistakesNameTheirLine) {
  EXPECT_THAT(sweep_error("[sweep]\ndraft_lenght = [1]\n"),
              HasSubstr("s.toml:7: 'draft_lenght': unknown key; did you mean 'draft_length'?"));
  EXPECT_THAT(sweep_error("[sweep]\nbatch = [0]\n"), HasSubstr("s.toml:7: batch: is 0; give"));
  EXPECT_THAT(sweep_error("[sweep]\nbatch = []\n"), HasSubstr("has no values"));
  EXPECT_THAT(sweep_error("[sweep]\n"), HasSubstr("has no axis"));
  EXPECT_THAT(sweep_error("[sweep]\ncombine = 'zipp'\nbatch = 1\n"), HasSubstr("cross or zip"));
  EXPECT_THAT(
      error_of([] { make_bench_config(parse_toml("[sweep]\nx = 1\n", "s.toml"), {}, "s", ""); }),
      HasSubstr("s.toml:1: sweep: is for `coppice bench` alone"));
}

/// Sweeps of a tiny model; each cell takes some ten milliseconds.
class SweepRun : public testing::Test {
 protected:
  SweepRun() {
    test::write_tiny_model(scratch_ / "tiny.gguf");
    std::ofstream(scratch_ / "tiny.jsonl")
        << "{\"id\": \"p1\", \"prompt\": \"one two one two one\"}\n"
           "{\"id\": \"p2\", \"prompt\": \"Say hello.\"}\n";
  }
  /// `length`: values of draft_length. Jacobi takes at most 64.
  void write_config(const std::string& length) {
    std::ofstream(scratch_ / "tiny.toml")
        << "[model]\npath = 'tiny.gguf'\n[bench]\nraw = true\nprompts = 'tiny.jsonl'\n"
           "backend = 'reference'\nthreads = 1\nmax_new_tokens = 6\nwarmup = 0\n"
           "[[method]]\nmethod = 'jacobi'\nbudget = 'all'\n"
           "[sweep]\ndraft_length = "
        << length << "\n";
  }
  BenchRequest request(const std::string& jobs = "1") const {
    BenchRequest request{.config = scratch_ / "tiny.toml", .out = scratch_ / "out", .jobs = jobs};
    request.program = COPPICE_PROGRAM;
    return request;
  }
  std::string report() const { return read_whole_file(scratch_ / "out/report.md"); }
  /// Rows and state of every finished cell: what a rerun must not touch.
  std::map<std::string, std::string> finished_cells() const {
    std::map<std::string, std::string> cells;
    if (!fs::exists(scratch_ / "out/cells")) return cells;
    for (const auto& cell : fs::directory_iterator(scratch_ / "out/cells")) {
      if (!fs::exists(cell.path() / "cell.json")) continue;
      const std::string state = read_whole_file(cell.path() / "cell.json");
      if (json::parse(state).at("status") != "done") continue;
      cells[cell.path().filename()] = state + read_whole_file(cell.path() / "prompts.jsonl");
    }
    return cells;
  }

  Scratch scratch_;
};

TEST_F(SweepRun, FinishedCellsAreNotRunAgain) {
  write_config("[1, 2]");
  ASSERT_EQ(run_bench(request()), 0);
  EXPECT_THAT(report(), HasSubstr("2 of 2 cells"));
  EXPECT_THAT(report(), HasSubstr("| 2 | jacobi | greedy |"));
  const auto before = finished_cells();
  ASSERT_EQ(before.size(), 2u);
  write_config("[1, 2, 3]");  // the sweep grew
  ASSERT_EQ(run_bench(request()), 0);
  const auto after = finished_cells();
  EXPECT_EQ(after.size(), 3u);
  for (const auto& cell : before) EXPECT_EQ(after.at(cell.first), cell.second);

  std::ofstream(scratch_ / "README.md") << "<!-- table:tiny -->\n<!-- /table -->\n";
  write_report({scratch_ / "out", scratch_ / "README.md"});
  EXPECT_THAT(read_whole_file(scratch_ / "README.md"), HasSubstr("| 3 | jacobi | greedy |"));
}

TEST_F(SweepRun, AFailedCellIsNamedAndTheOthersGoOn) {
  write_config("[1, 1000, 2]");  // 1000: refused when the drafter is made
  EXPECT_EQ(run_bench(request()), 1);
  EXPECT_THAT(report(), HasSubstr("2 of 3 cells"));
  EXPECT_THAT(report(), HasSubstr("- draft_length=1000 ("));
  EXPECT_THAT(report(), HasSubstr("draft_length: is 1000; give a value in"));
  // Tried again, not believed.
  EXPECT_EQ(run_bench(request()), 1);
}

TEST_F(SweepRun, TwoJobsGiveTheSameTexts) {
  if (usable_core_list().size() < 2) GTEST_SKIP() << "one core: nothing to share";
  write_config("[1, 2, 3]");
  ASSERT_EQ(run_bench(request("2")), 0);
  EXPECT_THAT(report(), HasSubstr("3 of 3 cells"));
  EXPECT_THAT(report(), HasSubstr("100.0 %"));
  EXPECT_THAT(error_of([&] { run_bench(request("0")); }), HasSubstr("--jobs 0: give 1 to"));
  EXPECT_THAT(error_of([&] { run_bench(request("many")); }), HasSubstr("or slurm"));
  BenchRequest greedy = request("2");
  greedy.overrides = {"bench.threads=1000"};
  EXPECT_THAT(error_of([&] { run_bench(greedy); }), HasSubstr("asks for 1000 threads"));
}

TEST_F(SweepRun, MistakesEndItBeforeAnythingIsWritten) {
  write_config("[1, 2]");
  std::ofstream(scratch_ / "tiny.jsonl", std::ios::app) << "{oops}\n";
  EXPECT_THAT(error_of([&] { run_bench(request()); }),
              HasSubstr("tiny.jsonl:3: is no JSON object"));
  write_config("[1, 2]\ndraft_lenght = 3");
  EXPECT_THAT(error_of([&] { run_bench(request()); }), HasSubstr("'draft_lenght': unknown key"));
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
  write_config("[1, 2]");
  std::ofstream(scratch_ / "tiny.jsonl") << "{\"prompt\": \"x\"}\n";
  fs::create_directories(scratch_ / "out");
  std::ofstream(scratch_ / "out/notes.txt") << "the user's own";
  EXPECT_THAT(error_of([&] { run_bench(request()); }), HasSubstr("is not empty"));
  BenchRequest plain = request();
  plain.cell = "0123456789ab";
  EXPECT_THAT(error_of([&] { run_bench(plain); }), HasSubstr("the sweep has no such cell"));
}

TEST_F(SweepRun, AFullDiskLosesNoFinishedCell) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "/dev/full is absent";
  write_config("[1]");
  ASSERT_EQ(run_bench(request()), 0);
  const auto before = finished_cells();
  write_config("[1, 2, 3]");
  const Sweep sweep = *read_sweep(scratch_ / "tiny.toml", {});
  // One cell's rows do not fit: it fails, says why, and the rest goes on.
  const fs::path rows = scratch_ / "out/cells" / sweep.cells[1].hash;
  fs::create_directories(rows);
  fs::create_symlink("/dev/full", rows / "steps.jsonl");
  EXPECT_EQ(run_bench(request()), 1);
  EXPECT_THAT(report(), HasSubstr("No space left on device"));
  EXPECT_THAT(report(), HasSubstr("2 of 3 cells"));
  EXPECT_EQ(finished_cells().at(sweep.cells[0].hash), before.begin()->second);
  // Not even the record fits: one error, at once.
  fs::remove(rows / "steps.jsonl");
  fs::create_symlink("/dev/full", scratch_ / "out/sweep.json.writing");
  EXPECT_THAT(error_of([&] { run_bench(request()); }),
              HasSubstr("sweep.json: cannot be written: No space left on device"));
  fs::remove(scratch_ / "out/sweep.json.writing");
  EXPECT_EQ(run_bench(request()), 0);
  EXPECT_EQ(finished_cells().at(sweep.cells[0].hash), before.begin()->second);
}

TEST_F(SweepRun, CellsOfAnotherModelAreNotMixedIn) {
  write_config("[1]");
  ASSERT_EQ(run_bench(request()), 0);
  std::ofstream(scratch_ / "tiny.gguf", std::ios::app) << "x";
  EXPECT_THAT(error_of([&] { run_bench(request()); }),
              HasSubstr("was measured with another model file"));
}

/// The program as a child that is killed with SIGKILL after `delay`, or ends before.
int run_and_kill(const fs::path& config, const fs::path& out, std::chrono::milliseconds delay) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stdout);
    std::freopen("/dev/null", "w", stderr);
    ::execl(COPPICE_PROGRAM, COPPICE_PROGRAM, "bench", config.c_str(), "--out", out.c_str(),
            nullptr);
    ::_exit(99);
  }
  const auto end = std::chrono::steady_clock::now() + delay;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

TEST_F(SweepRun, KilledAtRandomPointsItNeitherLosesNorRepeatsAFinishedCell) {
  write_config("[1, 2, 3, 4, 5, 6]");
  std::mt19937 random(7);
  std::map<std::string, std::string> before;
  int kills = 0, status = -1;
  // Longer and longer: on a slow machine too it comes to its end.
  for (double most_ms = 40; kills < 30 && status != 0; ++kills, most_ms *= 1.35) {
    const auto delay = std::chrono::milliseconds(1 + random() % static_cast<unsigned>(most_ms));
    status = run_and_kill(scratch_ / "tiny.toml", scratch_ / "out", delay);
    const auto after = finished_cells();
    for (const auto& cell : before) {
      ASSERT_TRUE(after.contains(cell.first)) << "lost after " << kills << " kills";
      ASSERT_EQ(after.at(cell.first), cell.second) << "repeated after " << kills << " kills";
    }
    before = after;
  }
  EXPECT_EQ(status, 0);
  EXPECT_GT(kills, 3);
  EXPECT_EQ(before.size(), 6u);
  EXPECT_THAT(report(), HasSubstr("6 of 6 cells"));
  for (const auto& cell : before) {  // no line twice, none cut
    std::map<std::string, int> rows;
    std::ifstream in(scratch_ / "out/cells" / cell.first / "prompts.jsonl");
    for (std::string line; std::getline(in, line);) {
      const json row = json::parse(line);
      ++rows[row["prompt"].get<std::string>() + row["arm"].get<std::string>()];
    }
    EXPECT_EQ(rows.size(), 4u);
    for (const auto& row : rows) EXPECT_EQ(row.second, 1) << row.first;
  }
}

TEST(Child, ItsOutputAndItsEndComeBack) {
  const ChildResult ran = run_child({.words = {"sh", "-c", "echo out; echo two >&2; exit 3"}});
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(ran.out, "out\n");
  EXPECT_EQ(ran.reason(), "two");
  EXPECT_THAT(run_child({.words = {"sh", "-c", "kill -9 $$"}}).reason(), HasSubstr("signal 9"));
  const ChildResult late = run_child({.words = {"sleep", "30"}, .limit_s = 0.05});
  EXPECT_TRUE(late.timed_out);
  const ChildResult absent = run_child({.words = {"/nowhere/program"}});
  EXPECT_EQ(absent.status, kNotStarted);
  EXPECT_THAT(absent.reason(), HasSubstr("No such file"));
}

TEST(Child, RunsOnTheCoresItIsGiven) {
  const int core = usable_core_list().back();
  const ChildResult ran = run_child(
      {.words = {"sh", "-c", "grep Cpus_allowed_list /proc/self/status"}, .cores = {core}});
  EXPECT_THAT(ran.out, HasSubstr(fmt::format("\t{}\n", core)));
}

}  // namespace
}  // namespace coppice
