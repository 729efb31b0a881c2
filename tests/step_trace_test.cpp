// A timeline is JSON that a viewer opens: phases in their order inside their step, a lane a
// request, engines one behind the other; and energy counters that wrap around.
#include "experiments/step_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/energy.h"
#include "experiments/run_folder.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path temporary(const std::string& name) {
  return fs::temp_directory_path() / (name + std::to_string(getpid()));
}

StepRecord step(double start_ms, int number, int emitted) {
  StepRecord s;
  s.start_ms = start_ms;
  s.step = number;
  s.emitted = emitted;
  s.batch = 2;
  s.plan_ms = 0.25;
  s.draft_ms = 0.5;
  s.target_ms = 3.0;
  s.judge_ms = 0.5;
  s.commit_ms = 0.25;
  s.other_ms = 0.75;  // a quarter of it packs
  return s;
}

json events_of(const fs::path& path) {
  const json trace = json::parse(read_whole_file(path));
  fs::remove(path);
  return trace.at("traceEvents");
}

json named(const json& events, const std::string& name) {
  json found = json::array();
  for (const json& event : events) {
    if (event["name"] == name) found.push_back(event);
  }
  return found;
}

TEST(StepTrace, PhasesStandInTheirStepAndRequestsOnLanes) {
  const fs::path path = temporary("trace");
  StepTrace trace(path);
  trace.begin("suffix");
  trace.add(step(100, 1, 3), "a\"\xff");  // any name
  trace.add(step(100, 1, 1), "b");        // of the same step
  trace.add(step(105, 2, 2), "b");
  trace.begin("baseline");
  trace.add(step(7, 1, 1), "b");
  trace.begin("suffix");
  trace.add(step(1, 1, 1), "b");
  trace.end();
  const json events = events_of(path);
  ASSERT_EQ(named(events, "target pass").size(), 4u);  // one a step, not one a sequence
  const json draft = named(events, "draft")[0], pass = named(events, "target pass")[0];
  const json judge = named(events, "judge")[0], commit = named(events, "commit")[0];
  EXPECT_EQ(draft["ts"], 250.0);
  EXPECT_EQ(draft["dur"], 500.0);
  EXPECT_EQ(pass["ts"], 1000.0);  // behind the packing
  EXPECT_EQ(judge["ts"], 4000.0);
  EXPECT_EQ(commit["ts"], 4500.0);
  EXPECT_EQ(commit["dur"], 250.0);
  const json three = named(events, "+3")[0];
  EXPECT_EQ(three["ts"], 0.0);
  EXPECT_EQ(three["dur"], 4750.0);
  EXPECT_NE(three["tid"], pass["tid"]);
  EXPECT_EQ(named(events, "+2")[0]["ts"], 5000.0);
  // The next engine's clock begins where this one's ended, and its lanes are its own.
  const json last = named(events, "target pass");
  EXPECT_EQ(last[2]["ts"], 5000.0 + 4750.0 + 1000.0);
  EXPECT_NE(last[2]["pid"], last[0]["pid"]);
  EXPECT_EQ(last[3]["pid"], last[0]["pid"]);
  EXPECT_EQ(named(events, "process_name").size(), 2u);
  EXPECT_EQ(named(events, "thread_name").size(), 2u + 3u);  // two engines; a and b, and b again
}

TEST(StepTrace, AFileThatCannotBeWrittenIsSaid) {
  EXPECT_THROW(StepTrace("/nowhere/trace.json"), Failure);
}

TEST(EnergyMeter, AddsPackagesAndSurvivesTheirWrap) {
  const fs::path folder = temporary("powercap");
  const auto write = [&](const std::string& zone, const std::string& file, const auto& value) {
    fs::create_directories(folder / zone);
    std::ofstream(folder / zone / file) << value << "\n";
  };
  const auto zone = [&](const std::string& name, const std::string& label, uint64_t uj) {
    write(name, "name", label);
    write(name, "max_energy_range_uj", 10'000'000);
    write(name, "energy_uj", uj);
  };
  zone("intel-rapl:0", "package-0", 1'000'000);
  zone("intel-rapl:1", "package-1", 9'000'000);
  zone("intel-rapl:0:0", "core", 500'000);  // a part of the package
  EnergyMeter meter(folder);
  ASSERT_TRUE(meter.available());
  EXPECT_EQ(meter.joules(), 0.0);
  zone("intel-rapl:0", "package-0", 3'000'000);
  zone("intel-rapl:1", "package-1", 1'000'000);  // around
  zone("intel-rapl:0:0", "core", 2'500'000);
  EXPECT_DOUBLE_EQ(meter.joules(), 2.0 + 2.0);
  EXPECT_DOUBLE_EQ(meter.joules(), 4.0);
  fs::remove_all(folder);
  EXPECT_FALSE(EnergyMeter(folder).available());
}

}  // namespace
}  // namespace coppice
