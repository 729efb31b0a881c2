// A whole experiment on a tiny model: rows, resuming, failing prompts, folders that cannot be
// written; and the parts around it.
#include "experiments/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file_hash.h"
#include "drafters/methods.h"
#include "experiments/manifest.h"
#include "experiments/progress.h"
#include "experiments/prompt_row.h"
#include "experiments/replay.h"
#include "experiments/workload.h"
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

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Prompts, AreReadWithDefaults) {
  const auto prompts = parse_prompts(
      "{\"id\": \"a\", \"category\": \"qa\", \"prompt\": \"x\", \"source\": 3}\n\n"
      "{\"prompt\": \"y\"}",
      "p.jsonl");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].id, "a");
  EXPECT_EQ(prompts[0].category, "qa");
  EXPECT_EQ(prompts[1].id, "line-3");
  EXPECT_EQ(prompts[1].category, "all");
  EXPECT_NE(prompts[0].request, prompts[1].request);
}

TEST(Prompts, PublishedFilesAreReadAsTheyAre) {
  const auto prompts = parse_prompts(
      "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"x\", \"y\"]}\n"
      "{\"question_id\": 241, \"category\": \"translation\", \"turns\": [\"z\"]}\n"
      "{\"question\": \"1 + 1?\", \"answer\": \"#### 2\"}\n",
      "question.jsonl");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].id, "mt-bench-81");
  EXPECT_EQ(prompts[0].category, "mt-bench");
  EXPECT_EQ(prompts[0].text, "x");
  EXPECT_EQ(prompts[1].category, "translation");
  EXPECT_EQ(prompts[2].id, "gsm8k-3");
  EXPECT_EQ(prompts[2].category, "gsm8k");
  EXPECT_EQ(prompts[2].text, "1 + 1?");
}

TEST(Prompts, ErrorsNameTheLine) {
  const auto error = [](const char* text) {
    return error_of([&] { parse_prompts(text, "p.jsonl"); });
  };
  EXPECT_THAT(error("{\"prompt\": \"x\"}\n{oops}\n"), HasSubstr("p.jsonl:2: is no JSON object"));
  EXPECT_THAT(error("{\"prompt\": \"\xff\"}\n"), HasSubstr("p.jsonl:1: is no JSON object"));
  EXPECT_THAT(error("{\"id\": \"a\"}\n"), HasSubstr("p.jsonl:1: prompt: is missing"));
  EXPECT_THAT(error("{\"prompt\": \"\"}\n"), HasSubstr("p.jsonl:1: prompt: is no text, or empty"));
  EXPECT_THAT(error("{\"prompt\": \"x\", \"id\": 3}\n"), HasSubstr("id: is no text"));
  EXPECT_THAT(error("{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n"),
              HasSubstr("p.jsonl:2: id: 'a' is taken"));
  EXPECT_THAT(error("{\"turns\": []}\n"), HasSubstr("p.jsonl:1: is no question"));
  EXPECT_THAT(error("\n \n"), HasSubstr("p.jsonl: holds no prompts"));
}

TEST(Prompts, TheBuiltInOnesCoverEightCategories) {
  const auto all = builtin_prompts();
  EXPECT_GE(all.size(), 24u);
  const auto picked = pick_prompts(all, {}, 3);
  EXPECT_EQ(picked.size(), 24u);
  std::set<std::string> categories, ids;
  for (const Prompt& prompt : picked) {
    categories.insert(prompt.category);
    ids.insert(prompt.id);
  }
  EXPECT_THAT(categories,
              ElementsAre("chat", "code", "math", "qa", "rag", "rewrite", "summary", "translate"));
  EXPECT_EQ(ids.size(), 24u);
  for (const Prompt& warm : warmup_prompts(4)) {
    for (const Prompt& prompt : all) EXPECT_NE(warm.text, prompt.text);
  }
}

TEST(Prompts, PickingIsByCategoryInOrder) {
  const auto all = builtin_prompts();
  const std::vector<std::string> wanted = {"math", "code"};
  const auto picked = pick_prompts(all, wanted, 1);
  ASSERT_EQ(picked.size(), 2u);
  EXPECT_EQ(picked[0].category, "code");
  EXPECT_EQ(picked[1].category, "math");
  const std::vector<std::string> unknown = {"maths"};
  EXPECT_THAT(error_of([&] { pick_prompts(all, unknown, 1); }), HasSubstr("did you mean 'math'?"));
  EXPECT_EQ(pick_prompts(all, {}, 0).size(), all.size());
}

TEST(Folder, ANonEmptyOneIsRefusedUnlessToldWhatToDo) {
  const Scratch scratch;
  std::ofstream(scratch / "report.md") << "old";
  std::ofstream(scratch / "notes.txt") << "the user's own";
  EXPECT_THAT(error_of([&] { RunFolder(scratch.path(), Existing::refuse); }),
              HasSubstr("is not empty; continue it with --resume"));
  RunFolder(scratch.path(), Existing::resume);
  EXPECT_TRUE(fs::exists(scratch / "report.md"));
  RunFolder(scratch.path(), Existing::overwrite);
  EXPECT_FALSE(fs::exists(scratch / "report.md"));
  EXPECT_TRUE(fs::exists(scratch / "notes.txt"));
}

TEST(Folder, WhatCannotBeMadeIsAFailureOfOneLine) {
  const Scratch scratch;
  std::ofstream(scratch / "file") << "x";
  EXPECT_THROW(RunFolder(scratch / "file" / "run", Existing::refuse), Failure);
  EXPECT_THROW(write_whole_file(scratch / "absent" / "x", "text"), Failure);
  EXPECT_THROW(read_whole_file(scratch / "absent"), Failure);
}

TEST(Folder, AFullDiskLeavesWhatWasFinished) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "/dev/full is absent";
  const Scratch scratch;
  const RunFolder folder(scratch.path(), Existing::refuse);
  folder.append("prompts.jsonl", "one\n");
  fs::create_symlink("/dev/full", scratch / "steps.jsonl");
  const std::string message = error_of([&] { folder.append("steps.jsonl", "two\n"); });
  EXPECT_THAT(message, HasSubstr("No space left on device"));
  EXPECT_THAT(message, HasSubstr("continue with --resume"));
  EXPECT_EQ(folder.read("prompts.jsonl"), "one\n");
}

TEST(Progress, ElsewhereThanOnATerminalItPrintsLines) {
  std::FILE* out = std::tmpfile();
  {
    Progress progress(2, "prompts", out);
    progress.advance(1);  // too soon after the start
    progress.advance(1);
  }
  std::rewind(out);
  char text[200] = {};
  ASSERT_GT(std::fread(text, 1, sizeof(text) - 1, out), 0u);
  std::fclose(out);
  EXPECT_THAT(text, HasSubstr("2/2 prompts, 0:00 gone, 0:00 left\n"));
  EXPECT_THAT(text, Not(HasSubstr("1/2")));
  EXPECT_EQ(clock_text(3725), "1:02:05");
}

/// Two short prompts and one that does not fit, with prompt_lookup and jacobi, on `reference`.
class BenchRun : public testing::Test {
 protected:
  BenchRun() { test::write_tiny_model(scratch_ / "tiny.gguf"); }
  void write_config(const std::string& more = "") {
    std::ofstream(scratch_ / "tiny.toml") << "[model]\npath = \"tiny.gguf\"\n[bench]\nraw = true\n"
                                             "prompts = \"tiny.jsonl\"\n"
                                             "backend = \"reference\"\n"
                                             "max_new_tokens = 6\n"
                                             "warmup = 0\n"
                                          << more
                                          << "[[method]]\nmethod = \"prompt_lookup\"\n"
                                             "draft_length = 2\n"
                                             "[[method]]\nmethod = \"jacobi\"\n"
                                             "draft_length = 2\n";
  }
  void write_prompts(bool with_long_one) {
    std::ofstream out(scratch_ / "tiny.jsonl");
    out << "{\"id\": \"p1\", \"category\": \"qa\", \"prompt\": \"one two one two one\"}\n"
           "{\"id\": \"p2\", \"category\": \"chat\", \"prompt\": \"Say hello.\"}\n";
    if (with_long_one) {
      std::string words;
      for (int i = 0; i < 100; ++i) words += " word";
      out << json{{"id", "long"}, {"category", "qa"}, {"prompt", words}} << "\n";
    }
  }
  BenchRequest request(Existing existing = Existing::refuse) const {
    return {scratch_ / "tiny.toml", {}, scratch_ / "out", existing};
  }

  Scratch scratch_;
};

TEST_F(BenchRun, WritesRowsStepsManifestSummaryAndReport) {
  write_config();
  write_prompts(false);
  EXPECT_EQ(run_bench(request()), 0);
  const auto rows = lines_of(scratch_ / "out/prompts.jsonl");
  EXPECT_EQ(rows.size(), 6u);  // two prompts, three arms
  const json summary = json::parse(read_whole_file(scratch_ / "out/summary.json"));
  for (const json& method : summary["methods"]) {
    EXPECT_EQ(method["identical_rate"], 1.0) << method["name"];
    EXPECT_GT(method["speedup"]["value"], 0.0);
  }
  int steps = 0;
  for (const auto& line : rows) {
    const json row = json::parse(line);
    EXPECT_EQ(row["ids"].size(), row["decode_tokens"].get<size_t>() + 1);  // and the prefill's
    EXPECT_GT(row["ttft_ms"], 0.0);
    steps += row["steps"].get<int>();
  }
  int decode_lines = 0;
  for (const auto& line : lines_of(scratch_ / "out/steps.jsonl")) {
    decode_lines += !json::parse(line)["prefill"].get<bool>();
  }
  EXPECT_EQ(decode_lines, steps);

  const std::string manifest_text = read_whole_file(scratch_ / "out/manifest.json");
  EXPECT_THAT(manifest_text, Not(HasSubstr("\"/")));  // no absolute path
  const json manifest = json::parse(manifest_text);
  EXPECT_EQ(manifest["model"]["name"], "Tiny llama");
  EXPECT_EQ(manifest["model"]["sha256"], sha256_of(scratch_ / "tiny.gguf"));
  EXPECT_EQ(manifest["prompts"].size(), 2u);
  EXPECT_EQ(manifest["arms"][0]["name"], "baseline");

  EXPECT_THAT(error_of([&] { run_bench(request()); }), HasSubstr("is not empty"));

  // The report comes out the same from the rows alone.
  const std::string report = read_whole_file(scratch_ / "out/report.md");
  fs::remove(scratch_ / "out/report.md");
  std::ofstream(scratch_ / "README.md") << "<!-- table:tiny -->\n<!-- /table -->\n";
  write_report({scratch_ / "out", scratch_ / "README.md"});
  EXPECT_EQ(read_whole_file(scratch_ / "out/report.md"), report);
  EXPECT_THAT(read_whole_file(scratch_ / "README.md"), HasSubstr("| jacobi | greedy |"));
}

TEST_F(BenchRun, ResumesWithWhatIsMissingAlone) {
  write_config();
  write_prompts(false);
  ASSERT_EQ(run_bench(request()), 0);
  const auto rows = lines_of(scratch_ / "out/prompts.jsonl");

  // As after a kill: the last prompt has two of its three rows, the second cut in its middle.
  {
    std::ofstream out(scratch_ / "out/prompts.jsonl", std::ios::trunc);
    for (size_t i = 0; i < 4; ++i) out << rows[i] << "\n";
    out << rows[4].substr(0, 40);
  }
  EXPECT_EQ(run_bench(request(Existing::resume)), 0);
  const auto again = lines_of(scratch_ / "out/prompts.jsonl");
  ASSERT_EQ(again.size(), 6u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(again[i], rows[i]);  // kept, times and all
  for (size_t i = 3; i < 6; ++i) {
    EXPECT_EQ(json::parse(again[i])["ids"], json::parse(rows[i])["ids"]);
  }

  write_config("seed = 9\n");
  EXPECT_THAT(error_of([&] { run_bench(request(Existing::resume)); }),
              HasSubstr("the earlier run differs in config/bench/seed"));
}

TEST_F(BenchRun, ABaselineThatMovedIsToldInTheReport) {
  write_config("prompts_per_category = 0\n");
  {
    std::ofstream out(scratch_ / "tiny.jsonl");
    for (int i = 0; i < 12; ++i) {
      out << json{{"id", fmt::format("p{}", i)}, {"prompt", "Say hello."}} << "\n";
    }
  }
  ASSERT_EQ(run_bench(request()), 0);
  const auto rows = lines_of(scratch_ / "out/prompts.jsonl");
  const auto report_where = [&](double last_third_ms) {
    {
      std::ofstream out(scratch_ / "out/prompts.jsonl", std::ios::trunc);
      for (size_t i = 0; i < rows.size(); ++i) {
        json row = json::parse(rows[i]);
        row["decode_ms"] = i >= rows.size() / 3 * 2 ? last_third_ms : 10.0;
        out << row << "\n";
      }
    }
    write_report({scratch_ / "out", ""});
    return read_whole_file(scratch_ / "out/report.md");
  };
  EXPECT_THAT(report_where(10.4), Not(HasSubstr("The machine's own speed changed")));
  EXPECT_THAT(report_where(11.0), HasSubstr("the baseline moved by 10.0 %"));
}

TEST_F(BenchRun, APromptThatDoesNotFitIsListedAndLeftOut) {
  write_config();
  write_prompts(true);
  EXPECT_EQ(run_bench(request()), 1);
  const std::string report = read_whole_file(scratch_ / "out/report.md");
  EXPECT_THAT(report, HasSubstr("3 answers failed"));
  EXPECT_THAT(report, HasSubstr("- long, baseline: "));
  const json summary = json::parse(read_whole_file(scratch_ / "out/summary.json"));
  EXPECT_EQ(summary["methods"][0]["identical_rate"], 1.0);
}

TEST_F(BenchRun, MistakesEndBeforeAnythingIsWritten) {
  write_config("max_new_tokens = -1\n");
  write_prompts(false);
  EXPECT_THROW(run_bench(request()), Error);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
  EXPECT_THAT(error_of([&] {
                write_report({scratch_ / "out", ""});
              }),
              HasSubstr("holds no manifest.json"));
}

TEST_F(BenchRun, WithFreshMemoryAPromptDecodesTwiceInTheSameSteps) {
  write_config();
  std::ofstream(scratch_ / "tiny.jsonl")
      << "{\"id\": \"p1\", \"prompt\": \"one two one two one\"}\n"
         "{\"id\": \"p2\", \"prompt\": \"one two one two one\"}\n";
  ASSERT_EQ(run_bench(request()), 0);
  std::map<std::string, std::set<int>> steps;
  for (const auto& line : lines_of(scratch_ / "out/prompts.jsonl")) {
    const json row = json::parse(line);
    steps[row["arm"]].insert(row["steps"].get<int>());
  }
  for (const auto& entry : steps) EXPECT_EQ(entry.second.size(), 1u) << entry.first;
}

TEST_F(BenchRun, ABatchOfTwoGivesTheSameIds) {
  write_config();
  write_prompts(false);
  ASSERT_EQ(run_bench(request()), 0);
  BenchRequest batched = request(Existing::overwrite);
  batched.out = scratch_ / "batched";
  batched.overrides = {"bench.batch=2"};
  ASSERT_EQ(run_bench(batched), 0);
  const auto ids = [&](const std::string& folder) {
    std::map<std::string, json> out;
    for (const auto& line : lines_of(scratch_ / folder / "prompts.jsonl")) {
      const json row = json::parse(line);
      out[row["prompt"].get<std::string>() + row["arm"].get<std::string>()] = row["ids"];
    }
    return out;
  };
  EXPECT_EQ(ids("out"), ids("batched"));
}

// Steps, rows and acceptance of every arm that sees ids alone, to the last one.
TEST_F(BenchRun, ReplayedWithoutTheModelGivesItsOwnCounts) {
  write_config("[[method]]\nname = \"long\"\nmethod = \"prompt_lookup\"\nbudget = 5\n");
  write_prompts(false);
  BenchRequest asked = request();
  asked.overrides = {"bench.max_new_tokens=60", "bench.backend=\"cpu\"", "bench.threads=1",
                     "method.prompt_lookup.budget=\"all\"", "method.jacobi.budget=0"};
  ASSERT_EQ(run_bench(asked), 0);
  const RecordedRun run = read_recorded_run(scratch_ / "out");
  ASSERT_EQ(run.answers.size(), 2u);
  for (const auto& [arm, length, budget] :
       {std::tuple{"prompt_lookup", int64_t{2}, -1}, {"long", int64_t{10}, 5}}) {
    PromptRow sum;
    for (const std::string& line : lines_of(scratch_ / "out" / "prompts.jsonl")) {
      const PromptRow row = row_from_json(json::parse(line), "");
      if (row.arm != arm) continue;
      sum.steps += row.steps;
      sum.decode_tokens += row.decode_tokens;
      sum.rows += row.rows;
      sum.drafted += row.drafted;
      sum.accepted += row.accepted;
      for (size_t i = 0; i < row.reached_at.size(); ++i) {
        sum.reached_at.resize(std::max(sum.reached_at.size(), i + 1));
        sum.reached_at[i] += row.reached_at[i];
      }
    }
    const OptionMap options = {{"draft_length", length, "test"}};
    const ReplayTotals replayed = replay_answers(
        run, [&] { return find_method("prompt_lookup").make(options, {}); }, budget);
    EXPECT_GT(sum.accepted, 20) << arm;
    EXPECT_EQ(replayed.steps, sum.steps) << arm;
    EXPECT_EQ(replayed.emitted, sum.decode_tokens) << arm;
    EXPECT_EQ(replayed.rows, sum.rows) << arm;
    EXPECT_EQ(replayed.drafted, sum.drafted) << arm;
    EXPECT_EQ(replayed.accepted, sum.accepted) << arm;
    EXPECT_EQ(replayed.reached_at, sum.reached_at) << arm;
  }
  EXPECT_THAT(error_of([&] {
                replay_answers(
                    run, [] { return find_method("jacobi").make({}, {}); }, -1);
              }),
              HasSubstr("token ids alone"));
  // The oracle knows these answers.
  const OptionMap options = {{"answers", (scratch_ / "out" / "prompts.jsonl").string(), "test"},
                             {"depth", int64_t{3}, "test"}};
  const ReplayTotals best = replay_answers(
      run, [&] { return find_method("oracle").make(options, {}); }, -1);
  EXPECT_EQ(best.accepted, best.drafted);
  EXPECT_EQ(best.reached_at, best.accepted_at);
}

}  // namespace
}  // namespace coppice
