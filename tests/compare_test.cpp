// Two runs side by side: what changed is named, what differs by chance is called no difference, and
// a run made again from its manifest agrees with itself.
#include "experiments/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "experiments/bench.h"
#include "experiments/commands.h"
#include "experiments/prompt_row.h"
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
using testing::IsEmpty;

/// A run of 24 prompts that never was: the baseline at `token_ms`, a method at `speedup` of it.
void write_run(const fs::path& folder, double token_ms, double speedup, unsigned noise_seed,
               int first_id = 5) {
  fs::create_directories(folder);
  std::mt19937 lengths(3), noise_generator(noise_seed);
  std::lognormal_distribution<double> noise(0.0, 0.03);
  json manifest = {{"schema", 1},
                   {"config", {{"bench", {{"name", folder.filename()}, {"seed", 1}}}}},
                   {"model", {{"file", "m.gguf"}, {"sha256", "00"}}},
                   {"machine", {{"cpu", "c"}}},
                   {"backend", "cpu"},
                   {"arms", json::array()},
                   {"prompts", json::array()}};
  for (const char* arm : {"baseline", "m"}) {
    manifest["arms"].push_back(
        {{"name", arm}, {"method", arm}, {"rule", "greedy"}, {"lossless", true}});
  }
  std::ofstream rows(folder / "prompts.jsonl");
  for (int i = 0; i < 24; ++i) {
    const std::string id = "p" + std::to_string(i);
    manifest["prompts"].push_back(id);
    const int tokens = 20 + static_cast<int>(lengths() % 60);
    for (const char* arm : {"baseline", "m"}) {
      PromptRow row;
      row.prompt = id;
      row.category = "c";
      row.arm = arm;
      row.ids = {first_id, 6};
      row.decode_tokens = tokens;
      row.steps = tokens;
      const bool method = std::string_view(arm) == "m";
      row.decode_ms = tokens * token_ms / (method ? speedup : 1.0) * noise(noise_generator);
      rows << row_to_json(row).dump() << "\n";
    }
  }
  std::ofstream(folder / "manifest.json") << manifest.dump();
}

TEST(Pairs, HandComputed) {
  const std::vector<double> a = {2, 8}, b = {1, 2};
  const auto compared = compare_pairs(a, b);
  EXPECT_DOUBLE_EQ(compared->ratio.value, 10.0 / 3.0);
  // Logs of the ratios: log 2 and log 4; mean 1.5 log 2, deviation log 2 / sqrt 2.
  EXPECT_NEAR(*compared->effect, 1.5 * std::sqrt(2.0), 1e-12);
  EXPECT_TRUE(compared->differs());
  EXPECT_FALSE(compare_pairs(a, a)->effect);
  EXPECT_FALSE(compare_pairs(a, a)->differs());
  EXPECT_FALSE(compare_pairs({}, {}));
  // A machine at half the speed throughout: the speedup is the same.
  const std::vector<double> slow_a = {4, 16}, slow_b = {2, 4};
  EXPECT_DOUBLE_EQ(compare_ratios(slow_a, slow_b, a, b)->ratio.value, 1.0);
}

TEST(Compare, AnAaCheckFindsNoDifference) {
  const Scratch scratch;
  int differ = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    write_run(scratch / "a", 2.5, 1.3, 100 + seed);
    write_run(scratch / "b", 2.5, 1.3, 200 + seed);
    const Comparison found = compare_runs(scratch / "a", scratch / "b");
    EXPECT_THAT(found.changes, IsEmpty());
    EXPECT_EQ(found.common, 24u);
    EXPECT_THAT(disagreements(found), IsEmpty());
    differ += found.arms[1].b_over_a->differs();
  }
  EXPECT_LE(differ, 4);  // one in twenty, by chance
  EXPECT_THAT(comparison_text(compare_runs(scratch / "a", scratch / "b")),
              HasSubstr("an A/A check"));
}

TEST(Compare, ASlowerMachineIsNoSlowerMethod) {
  const Scratch scratch;
  write_run(scratch / "a", 2.5, 1.3, 1);
  write_run(scratch / "b", 5.0, 1.3, 2);
  const Comparison found = compare_runs(scratch / "a", scratch / "b");
  EXPECT_NEAR(found.arms[0].b_over_a->ratio.value, 0.5, 0.03);  // the baseline itself
  EXPECT_TRUE(found.arms[0].b_over_a->differs());
  EXPECT_FALSE(found.arms[1].b_over_a->differs());
  EXPECT_THAT(disagreements(found), IsEmpty());
}

TEST(Compare, ARealDifferenceIsSeenWithItsSize) {
  const Scratch scratch;
  write_run(scratch / "a", 2.5, 1.3, 1);
  write_run(scratch / "b", 2.5, 1.5, 2, 9);
  const Comparison found = compare_runs(scratch / "a", scratch / "b");
  const ComparedArm& method = found.arms[1];
  EXPECT_TRUE(method.b_over_a->differs());
  EXPECT_NEAR(method.b_over_a->ratio.value, 1.5 / 1.3, 0.05);
  EXPECT_GT(*method.b_over_a->effect, 0.8);
  EXPECT_EQ(*method.identical, 0.0);
  EXPECT_THAT(disagreements(found),
              ElementsAre(HasSubstr("baseline: 0.0 % of its texts"), HasSubstr("m: 0.0 % of its"),
                          HasSubstr("m: speedup 1.")));
  EXPECT_THAT(comparison_text(found), HasSubstr("B is faster"));
}

TEST(Compare, WhatChangedIsNamed) {
  const Scratch scratch;
  write_run(scratch / "a", 2.5, 1.3, 1);
  write_run(scratch / "b", 2.5, 1.3, 2);
  json manifest = json::parse(std::ifstream(scratch / "b/manifest.json"));
  manifest["config"]["bench"]["seed"] = 7;
  manifest["arms"][1]["name"] = "n";
  std::ofstream(scratch / "b/manifest.json") << manifest.dump();
  const Comparison found = compare_runs(scratch / "a", scratch / "b");
  EXPECT_THAT(found.changes, ElementsAre("config/bench/seed: 1 -> 7"));
  EXPECT_THAT(found.only_a, ElementsAre("m"));
  EXPECT_THAT(found.only_b, ElementsAre("n"));
  EXPECT_THAT(error_of([&] { compare_runs(scratch / "a", scratch / "c"); }),
              HasSubstr("holds no manifest.json"));
}

TEST(Compare, CommittedRunsWithoutRowsAreComparedByTheirSummaries) {
  const Scratch scratch;  // a checkout may hold the rows of a run of its own
  const fs::path methods = scratch / "methods";
  fs::create_directories(methods);
  for (const char* name : {"manifest.json", "summary.json"}) {
    fs::copy(fs::path(COPPICE_SOURCE_DIR) / "results/methods" / name, methods);
  }
  const Comparison found = compare_runs(methods, methods);
  ASSERT_GT(found.arms.size(), 2u);
  EXPECT_GT(*found.arms[2].figure_a, 1.0);
  EXPECT_FALSE(found.arms[2].b_over_a);
  EXPECT_THAT(disagreements(found), IsEmpty());
}

TEST(Reproduce, ARunIsMadeAgainAndJudged) {
  const Scratch scratch;
  test::write_tiny_model(scratch / "tiny.gguf");
  fs::create_directories(scratch / "out");
  std::ofstream(scratch / "tiny.jsonl") << "{\"id\": \"p1\", \"prompt\": \"one two one\"}\n";
  std::ofstream(scratch / "tiny.toml")
      << "[model]\npath = 'tiny.gguf'\n[bench]\nraw = true\nprompts = 'tiny.jsonl'\n"
         "backend = 'reference'\nmax_new_tokens = 6\nwarmup = 0\n"
         "[[method]]\nmethod = 'jacobi'\nbudget = 'all'\n";
  ASSERT_EQ(run_bench({.config = scratch / "tiny.toml",
                       .out = scratch / "out",
                       .existing = Existing::overwrite}),
            0);
  fs::copy(scratch / "tiny.gguf", scratch / "out/tiny.gguf");
  fs::copy(scratch / "tiny.jsonl", scratch / "out/tiny.jsonl");
  const std::vector<std::string> args = {(scratch / "out").string(), "--out",
                                         (scratch / "again").string()};
  reproduce_command(args);  // one prompt: its speedup has no interval and says nothing
  const Comparison found = compare_runs(scratch / "out", scratch / "again");
  EXPECT_EQ(*found.arms[1].identical, 1.0);
  EXPECT_THAT(found.changes, IsEmpty());
  std::ofstream(scratch / "out/tiny.gguf", std::ios::app) << "x";
  EXPECT_THAT(error_of([&] { reproduce_command(args); }), HasSubstr("is not the model of the run"));
}

}  // namespace
}  // namespace coppice
