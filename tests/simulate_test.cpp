// Steps of known cost, replayed: on the machine that recorded them the prediction is the
// measurement, on another it is what the other's costs say.
#include "experiments/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using testing::HasSubstr;

/// A pass over n rows with c tokens before it: 2 + 0.5 n + 0.001 c ms.
double true_ms(int rows, int context) {
  return 2.0 + 0.5 * rows + 0.001 * context;
}

/// The baseline takes 12 steps a prompt; the method four of four rows, three tokens each.
ReportedRun recorded_run(const std::string& method, double draft_ms) {
  ReportedRun run;
  run.label = "toy";
  for (const bool plain : {true, false}) {
    for (const int prompt : {0, 1}) {
      PromptRow row;
      row.prompt = std::to_string(prompt);
      row.arm = plain ? "baseline" : "drafted";
      row.prompt_tokens = 100;
      row.ids.assign(13, 1);
      const int rows = plain ? 1 : 4, emitted = plain ? 1 : 3;
      int position = 100 + 400 * prompt;
      for (int step = 0; step < 12 / emitted; ++step) {
        StepRecord s;
        s.step = step;
        s.position = position - 1;
        s.rows = rows;
        s.drafted = rows - 1;
        s.emitted = emitted;
        s.accepted = emitted - 1;
        s.target_ms = true_ms(rows, position);
        s.draft_ms = plain ? 0.0 : draft_ms;
        s.judge_ms = 0.02;
        s.other_ms = 0.01;
        add_step(row, s);
        run.steps.push_back({row.prompt, row.arm, s});
        if (!plain) row.matches.push_back(emitted - 1);
        position += emitted;
      }
      if (!plain) row.pass_ms = {1.0, 1.0, 1.0};
      run.rows.push_back(row);
    }
  }
  run.summary = summarise(run.rows, std::vector<ArmInfo>{{"baseline", "autoregressive", "greedy"},
                                                         {"drafted", method, "greedy"}});
  return run;
}

TEST(Simulate, RecordedCostsAreTheLineThatTheStepsLieOn) {
  const RecordedCosts costs(recorded_run("prompt_lookup", 0.1));
  for (const int rows : {1, 2, 3, 4, 9}) {
    for (const int context : {1, 300, 5000}) {
      EXPECT_NEAR(costs.pass_ms(rows, context), true_ms(rows, context), 1e-9) << rows;
    }
  }
}

TEST(Simulate, OnTheMachineThatRecordedThePredictionIsTheMeasurement) {
  const ReportedRun run = recorded_run("prompt_lookup", 0.1);
  const auto methods = simulate(run, RecordedCosts(run));
  ASSERT_EQ(methods.size(), 2u);
  EXPECT_NEAR(*methods[0].predicted, 1.0, 1e-12);
  EXPECT_NEAR(*methods[1].predicted, run.summary.methods[0].speedup->value, 1e-9);
  EXPECT_NEAR(*methods[1].step_cost, *run.summary.methods[0].step_cost_ratio, 1e-9);
  EXPECT_NEAR(*methods[1].tokens_per_s, *run.summary.methods[0].decode_tokens_per_s, 1e-6);
  // Three rows for three tokens, and no draft to pay for.
  EXPECT_GT(*methods[1].clairvoyant, *methods[1].predicted);
}

class FlatCosts : public PassCosts {
 public:
  double pass_ms(int, int) const override { return 1.0; }
  double judge_ms(double) const override { return 0.0; }
  double model_draft_ms(double recorded) const override { return 0.1 * recorded; }
};

TEST(Simulate, WhereRowsAreFreeTheSpeedupIsTokensPerStep) {
  // A table's draft takes the host as long as it did, a model's a tenth.
  const auto tables = simulate(recorded_run("prompt_lookup", 0.5), FlatCosts());
  EXPECT_NEAR(*tables[1].predicted, 3 * 1.01 / 1.51, 1e-12);
  const auto model = simulate(recorded_run("draft_model", 0.5), FlatCosts());
  EXPECT_NEAR(*model[1].predicted, 3 * 1.01 / 1.06, 1e-12);
  const auto layers = simulate(recorded_run("layer_skip", 0.5), FlatCosts());
  EXPECT_EQ(layers[1].predicted, model[1].predicted);
  EXPECT_NEAR(*tables[1].clairvoyant, 3.0, 1e-6);
}

TEST(Simulate, ALargeModelOnAFastMachineGainsMoreFromTheSameDrafts) {
  const ReportedRun run = recorded_run("prompt_lookup", 0.1);
  const RecordedCosts here(run);
  const Device& h200 = find_device("h200");
  const DeviceCosts there(h200, find_shape("llama-3-8b-bf16"), here, typical_context(run));
  const auto methods = simulate(run, there);
  EXPECT_GT(*methods[1].predicted, run.summary.methods[0].speedup->value);
  EXPECT_LT(*methods[1].predicted, 3.0);
  // 16 GB at 4.8 TB/s and more, in milliseconds.
  EXPECT_NEAR(there.pass_ms(1, 100), 4.0, 1.0);
}

TEST(Simulate, WhatCannotBeReplayedIsSaid) {
  ReportedRun run = recorded_run("prompt_lookup", 0.1);
  ReportedRun bare = run;
  bare.steps.clear();
  EXPECT_THROW(RecordedCosts{bare}, Error);
  const RecordedCosts costs(run);
  run.steps[3].record.batch = 2;
  EXPECT_THROW(simulate(run, costs), Error);
}

TEST(Devices, AFileDescribesAMachine) {
  const auto path = std::filesystem::path(COPPICE_SOURCE_DIR) / "configs/machines/l40s.toml";
  const Device device = read_device(path);
  EXPECT_EQ(device.full_name, "NVIDIA L40S");
  EXPECT_EQ(device.bytes_per_s, 864e9);
  const auto bad = std::filesystem::temp_directory_path() / "coppice-machine.toml";
  const auto message_of = [&](const std::string& text) -> std::string {
    std::ofstream(bad) << text;
    try {
      read_device(bad);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of("[machine]\nname = \"x\"\n"), HasSubstr("memory_gb"));
  EXPECT_THAT(message_of("[machine]\ngb_per_sec = 3\n"), HasSubstr("gb_per_s"));
  EXPECT_THAT(message_of("[device]\n"), HasSubstr("has no [machine] table"));
  std::filesystem::remove(bad);
}

}  // namespace
}  // namespace coppice
