// The probes compute what they say on every dispatch target; the roofline of a tiny model has all
// its figures, and they agree with each other. No time is asserted.
#include "experiments/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "experiments/backend_steps.h"
#include "experiments/commands.h"
#include "experiments/decoder.h"
#include "experiments/step_timer.h"
#include "kernels/base/error.h"
#include "kernels/cpu/probes.h"
#include "tests/tiny_model_file.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string_view> targets() {
  return backends().front().targets();
}

TEST(Probes, ReadEveryByteInEveryPattern) {
  const Buffer memory = allocate_host(3 * cpu::kReadMultiple + 8192);
  const size_t bytes = 3 * cpu::kReadMultiple;
  uint64_t expected = 0;
  for (size_t i = 0; i < bytes / 8; ++i) {
    const uint64_t word = 0x9E3779B97F4A7C15u * (i + 1);
    memory.as<uint64_t>()[i] = word;
    expected += word;
  }
  for (const std::string_view target : targets()) {
    EXPECT_EQ(cpu::machine_probes(target).target, target);
    for (const int streams : {1, 2, 4, 8}) {
      for (const int ahead : {0, 1024}) {
        EXPECT_EQ(cpu::machine_probes(target).read(memory.as<uint8_t>(), bytes, {streams, ahead}),
                  expected)
            << target << " " << streams;
      }
    }
  }
}

TEST(Probes, DoTheOperationsThatTheyCount) {
  for (const std::string_view target : targets()) {
    const cpu::MachineProbes& probes = cpu::machine_probes(target);
    EXPECT_EQ(probes.multiply_add(1000), 1000.0 * probes.multiply_add_lanes) << target;
    EXPECT_EQ(probes.dot(1000), 1000 * probes.dot_lanes) << target;
  }
}

class Roofline : public testing::Test {
 protected:
  Roofline() : path_(fs::temp_directory_path() / fmt::format("roofline-{}.gguf", ::getpid())) {
    test::write_tiny_model(path_);
  }
  ~Roofline() override { fs::remove(path_); }

  fs::path path_;
};

TEST_F(Roofline, RecordHasEveryFigureAndTheTableShowsThem) {
  RooflineRequest request{.machine = {.threads = 2}, .model = path_};
  request.contexts = {8, 100, 4096};
  request.rows = {4, 16};
  request.read_mib = {1};
  request.rounds = 2;
  const ordered_json record = measure_roofline(request);
  EXPECT_GT(record.at("fp32_gflop_per_s"), 0.0);
  EXPECT_GT(record.at("int8_gop_per_s"), 0.0);
  EXPECT_EQ(record.at("reads").at(0).at("bytes"), 1 << 20);
  EXPECT_GT(record.at("read").at("median_gb_per_s"), 0.0);
  EXPECT_EQ(record.at("contexts_left_out"), ordered_json::array({4096}));

  std::vector<std::pair<int, int>> steps;
  for (const ordered_json& step : record.at("steps")) {
    steps.emplace_back(step.at("context"), step.at("rows"));
    EXPECT_LE(step.at("ms").at("low"), step.at("ms").at("median"));
    EXPECT_LE(step.at("ms").at("median"), step.at("ms").at("high"));
    const bool one = step.at("rows") == 1;
    EXPECT_EQ(step.at("cost").at("median") == 1.0 && step.at("cost").at("low") == 1.0, one);
    EXPECT_EQ(step.contains("share_of_read_bandwidth"), one);
    EXPECT_EQ(step.contains("parts"), step.at("rows") != 4);
  }
  using P = std::pair<int, int>;
  EXPECT_THAT(steps, ElementsAre(P(8, 1), P(8, 4), P(8, 16), P(100, 1), P(100, 4), P(100, 16)));

  const std::string text = roofline_text(record);
  EXPECT_THAT(text, HasSubstr("Tiny llama"));
  EXPECT_THAT(text, HasSubstr("context 100"));
  EXPECT_THAT(text, HasSubstr("too short: context 4096"));
}

TEST_F(Roofline, AStepsWorkIsCountedFromTheModelsShape) {
  OpListener backend(make_backend({.threads = 1}));
  const LoadedModel loaded = load_model(path_, backend);
  StepTimer timer(*loaded.model, backend, 100, 4);
  timer.set_context(100);
  const StepWork work = timer.work(2);
  const ModelConfig& c = loaded.model->config();
  const int q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const double layer =
      double{1} * c.dim * (q + 2 * kv) + double{1} * q * c.dim + 3.0 * c.dim * c.ffn;
  EXPECT_EQ(work.product_operations, 2.0 * 2 * (2 * layer + double{1} * c.vocabulary * c.dim));
  // Row 0 sees 101 keys, row 1 sees 102; a multiply-add a value for scores, one for the sum.
  EXPECT_EQ(work.attention_operations, 2 * 4.0 * q * (101 + 102));
  EXPECT_EQ(work.bytes, static_cast<double>(loaded.model->weight_bytes()) + 2 * 2 * 2.0 * kv * 102);
}

TEST_F(Roofline, TheMachineAloneNeedsNoModel) {
  RooflineRequest request;
  request.machine.target = "scalar";
  request.read_mib = {1};
  const ordered_json record = measure_roofline(request);
  EXPECT_FALSE(record.contains("steps"));
  EXPECT_THAT(roofline_text(record), HasSubstr("cpu scalar"));
}

TEST_F(Roofline, AnotherBackendsStepsAreTimedBesideItsCopies) {
  RooflineRequest request{.machine = {.name = "reference", .threads = 1}, .model = path_};
  request.contexts = {8, 4096};
  request.rows = {3};
  request.rounds = 1;
  const ordered_json record = measure_backend_steps(request);
  EXPECT_GT(record.at("copy_gb_per_s"), 0.0);
  ASSERT_EQ(record.at("steps").size(), 2u);
  EXPECT_EQ(record.at("steps").at(0).at("cost"), 1.0);
  EXPECT_THAT(backend_steps_text(record), HasSubstr("reference"));
  request.model.clear();
  EXPECT_THROW(measure_backend_steps(request), Error);
}

TEST_F(Roofline, CommandPrintsJsonAndRefusesWhatIsWrong) {
  const std::vector<std::string> good = {
      "--model", path_.string(), "--contexts", "8",         "--rows", "2",     "--read-mib",
      "1",       "--rounds",     "1",          "--threads", "1",      "--json"};
  testing::internal::CaptureStdout();
  EXPECT_EQ(roofline_command(good), 0);
  const auto record = ordered_json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(record.at("steps").size(), 2u);  // 1 row and 2

  // main() prints an Error and exits with 2.
  const auto refuse = [](std::vector<std::string> args) { roofline_command(args); };
  EXPECT_THROW(refuse({"--target", "mmx"}), Error);
  EXPECT_THROW(refuse({"--rows", "0"}), Error);
  EXPECT_THROW(refuse({"--rounds", "0"}), Error);
  EXPECT_THROW(refuse({"--model", "no-such-model.gguf"}), Error);
  EXPECT_THROW(refuse({"--bandwidth"}), Error);
  EXPECT_THROW(refuse({"--model", path_.string(), "--contexts", "4096"}), Error);
}

}  // namespace
}  // namespace coppice
