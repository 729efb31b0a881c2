// Prompts in the formats that task sets are published in, told by their content; conversations; and
// contexts of a given length out of a text.
#include "experiments/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/bench.h"
#include "experiments/bench_prompts.h"
#include "experiments/code_tasks.h"
#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/test_files.h"
#include "tests/tiny_model_file.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

using nlohmann::json;
using test::error_of;
using test::Scratch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Prompt only(const std::string& text, const std::string& name = "p.jsonl") {
  const auto prompts = parse_prompts(text, name);
  EXPECT_EQ(prompts.size(), 1u);
  return prompts.at(0);
}

TEST(Formats, HumanEvalIsAPromptWithItsTests) {
  const json line = {{"task_id", "HumanEval/12"},
                     {"prompt", "def two():\n    \"\"\"Two.\"\"\"\n"},
                     {"entry_point", "two"},
                     {"canonical_solution", "    return 2\n"},
                     {"test", "def check(f):\n    assert f() == 2\n"}};
  const Prompt prompt = only(line.dump());
  EXPECT_EQ(prompt.id, "humaneval-12");
  EXPECT_EQ(prompt.category, "humaneval");
  EXPECT_EQ(prompt.raw_text, line["prompt"]);
  EXPECT_THAT(prompt.text, HasSubstr("```python\ndef two()"));
  const std::string continued = program_for(*prompt.code, "    return 2");
  EXPECT_THAT(continued, HasSubstr("\"\"\"Two.\"\"\"\n    return 2\n"));
  EXPECT_THAT(continued, HasSubstr("check(two)"));
  // A whole function in a fence stands for itself.
  const std::string whole =
      program_for(*prompt.code, "Sure:\n```python\ndef two():\n  return 2\n```\nDone.");
  EXPECT_THAT(whole, Not(HasSubstr("Two.")));
  EXPECT_THAT(whole, Not(HasSubstr("Done.")));
}

TEST(Formats, WhatStandsBeforeAFunctionIsKept) {
  const CodeTask task{"import math\ndef f(x):\n    '''doc'''\n", "assert f(1) == 1", "f"};
  EXPECT_EQ(program_for(task, "```\ndef f(x): return x\n```"),
            "import math\n\ndef f(x): return x\n\nassert f(1) == 1\n");
  EXPECT_EQ(code_of("```python\nunfinished"), "\nunfinished");
}

TEST(Formats, MbppComesInThreeForms) {
  const Prompt whole =
      only(R"({"task_id": 2, "text": "Write f.", "code": "x", "test_setup_code": "import re",)"
           R"( "test_list": ["assert f(1) == 1"], "challenge_test_list": []})");
  EXPECT_EQ(whole.id, "mbpp-2");
  EXPECT_THAT(whole.text, HasSubstr("Write f. Your code should pass these tests:"));
  EXPECT_EQ(whole.code->prefix, "import re\n");
  EXPECT_EQ(whole.code->test, "assert f(1) == 1\n");
  const Prompt sanitized =
      only(R"([{"task_id": 3, "prompt": "Write g.", "code": "x", "test_imports": ["import math"],)"
           R"( "test_list": ["assert g() == 2", "assert True"]}])",
           "sanitized-mbpp.json");
  EXPECT_EQ(sanitized.code->prefix, "import math\n\n");
  EXPECT_EQ(sanitized.code->test, "assert g() == 2\nassert True\n");
  const Prompt plus =
      only(R"({"task_id": "Mbpp/4", "prompt": "\"\"\"Write h.\"\"\"", "entry_point": "h",)"
           R"( "canonical_solution": "x", "assertion": "assert h() == 3"})");
  EXPECT_EQ(plus.id, "mbpp-4");
  EXPECT_EQ(plus.code->entry_point, "h");
}

TEST(Formats, SpecBenchKeepsItsNumbersCategoriesAndTurns) {
  const Prompt prompt = only(
      R"({"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["r"]})");
  EXPECT_EQ(prompt.question, 81);
  EXPECT_EQ(prompt.category, "mt-bench");
  EXPECT_EQ(prompt.set_category, "writing");
  EXPECT_THAT(prompt.later_turns, ElementsAre("b"));
  EXPECT_EQ(prompt.reference, "r");
}

TEST(Formats, InstructionsTokenIdsAndTexts) {
  const Prompt task = only(
      R"({"id": "s", "instruction": "Do.", "instances": [{"input": "It.", "output": "Done."}]})");
  EXPECT_EQ(task.text, "Do.\n\nIt.");
  EXPECT_EQ(task.reference, "Done.");
  EXPECT_THAT(only(R"({"id": "t", "ids": [3, 4]})").ids, ElementsAre(3, 4));
  const auto ids = parse_prompts("1 2 3\n\n40, 50\n", "p.ids");
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_THAT(ids[1].ids, ElementsAre(40, 50));
  EXPECT_EQ(ids[1].id, "line-3");
  const auto lines = parse_prompts("Why?\n\nWhere to, 2?\r\n", "asked.txt");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].text, "Where to, 2?");
  EXPECT_EQ(lines[1].id, "asked-3");
  EXPECT_EQ(lines[1].category, "asked");
}

TEST(Formats, MistakesNameTheirPlace) {
  const auto error = [](const std::string& text, const std::string& name) {
    return error_of([&] { parse_prompts(text, name); });
  };
  EXPECT_THAT(error("{\"ids\": [1, -2]}", "p.jsonl"), HasSubstr("p.jsonl:1: ids: are no token"));
  EXPECT_THAT(error("1 2\n99999999999\n", "p.ids"), HasSubstr("p.ids:2: holds a number"));
  EXPECT_THAT(error("[{\"prompt\": \"x\"}, 3]", "p.json"), HasSubstr("p.json: item 2: is no JSON"));
  EXPECT_THAT(error("[1, 2", "p.json"), HasSubstr("begins as a JSON list"));
  EXPECT_THAT(error("{\"task_id\": 1, \"text\": \"x\", \"test_list\": 3}", "p.jsonl"),
              HasSubstr("p.jsonl:1: test_list: is no list"));
  EXPECT_THAT(error("not json", "p.jsonl"), HasSubstr("p.jsonl:1: is no JSON object"));
  const Scratch scratch;
  std::ofstream(scratch / "m.jsonl.gz") << "\x1f\x8b\x08";
  EXPECT_THAT(error_of([&] { read_prompts(scratch / "m.jsonl.gz"); }), HasSubstr("gunzip"));
}

TEST(Formats, PublishedFilesAreRead) {
  REQUIRE_DATA(questions, "mt-bench/mt_bench/question.jsonl");
  REQUIRE_DATA(seeds, "alpaca-seed/seed_tasks.jsonl");
  EXPECT_EQ(read_prompts(questions).size(), 80u);
  EXPECT_EQ(with_turns(read_prompts(questions), 0).size(), 160u);
  EXPECT_EQ(read_prompts(seeds).size(), 175u);
}

TEST(Turns, FollowTheirPrompt) {
  const auto prompts = parse_prompts(
      "{\"question_id\": 1, \"category\": \"c\", \"turns\": [\"a\", \"b\", \"d\"]}\n"
      "{\"question_id\": 2, \"category\": \"c\", \"turns\": [\"e\"]}\n",
      "q.jsonl");
  const auto all = with_turns(prompts, 0);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2].id, "c-1#3");
  EXPECT_EQ(all[2].previous, "c-1#2");
  EXPECT_EQ(all[2].text, "d");
  EXPECT_EQ(with_turns(prompts, 2).size(), 3u);
  EXPECT_EQ(with_turns(prompts, 1).size(), 2u);
}

TEST(Series, EndsAtTheSamePlaceForEveryLength) {
  const Scratch scratch;
  {
    std::ofstream out(scratch / "book.txt");
    for (int i = 0; i < 2000; ++i) out << "word" << i << (i % 10 == 9 ? "\n" : " ");
  }
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2", {"h e"}));
  auto small = read_text_series(scratch / "book.txt", 16, 2);
  auto large = read_text_series(scratch / "book.txt", 64, 2);
  encode_prompts(small, tokenizer, false);  // no template is needed
  encode_prompts(large, tokenizer, false);
  ASSERT_EQ(small.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(small[i].ids.size(), 16u);
    ASSERT_EQ(large[i].ids.size(), 64u);
    EXPECT_TRUE(std::equal(small[i].ids.begin(), small[i].ids.end(), large[i].ids.end() - 16));
  }
  EXPECT_EQ(small[0].category, "book");
  EXPECT_NE(small[0].ids, small[1].ids);
  auto huge = read_text_series(scratch / "book.txt", 100'000, 1);
  EXPECT_THAT(error_of([&] { encode_prompts(huge, tokenizer, true); }),
              HasSubstr("give a longer text or a shorter context"));
  std::ofstream(scratch / "p.jsonl") << "{\"prompt\": \"x\"}\n";
  EXPECT_THAT(error_of([&] { read_text_series(scratch / "p.jsonl", 16, 1); }),
              HasSubstr("p.jsonl is no plain text"));
}

/// Two turns on a real chat model: the second follows the baseline's answer, in every arm.
TEST(Turns, GoOnFromTheBaselinesAnswers) {
  REQUIRE_MODEL(model, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const Scratch scratch;
  std::ofstream(scratch / "q.jsonl") << "{\"question_id\": 7, \"category\": \"stem\", \"turns\": "
                                        "[\"Say one word.\", \"Again.\"]}\n";
  std::ofstream(scratch / "two.toml")
      << "[model]\npath = '" << model.string() << "'\n"
      << "[bench]\nprompts = 'q.jsonl'\nturns = 0\nmax_new_tokens = 4\nwarmup = 0\n"
         "[[method]]\nmethod = 'prompt_lookup'\nbudget = 'all'\n";
  BenchRequest request{.config = scratch / "two.toml", .out = scratch / "out"};
  request.spec_bench_answers = scratch / "answers";
  ASSERT_EQ(run_bench(request), 0);
  std::map<std::string, json> rows;
  std::ifstream in(scratch / "out/prompts.jsonl");
  for (std::string line; std::getline(in, line);) {
    const json row = json::parse(line);
    rows[row["arm"].get<std::string>() + row["prompt"].get<std::string>()] = row;
  }
  ASSERT_EQ(rows.size(), 4u);
  const json &first = rows["baselinemt-bench-7"], &second = rows["baselinemt-bench-7#2"];
  const auto so_far = first["prompt_ids"].get<std::vector<int>>();
  const auto then = second["prompt_ids"].get<std::vector<int>>();
  ASSERT_GT(then.size(), so_far.size());
  EXPECT_TRUE(std::equal(so_far.begin(), so_far.end(), then.begin()));
  EXPECT_EQ(rows["prompt_lookupmt-bench-7#2"]["ids"], second["ids"]);

  // What Spec-Bench's speed.py reads.
  std::ifstream answers(scratch / "answers/prompt_lookup.jsonl");
  const json answer = json::parse(answers);
  EXPECT_EQ(answer["question_id"], 7);
  EXPECT_EQ(answer["category"], "stem");
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["turns"].size(), 2u);
  EXPECT_EQ(choice["new_tokens"][0], first["ids"].size());
  EXPECT_GT(choice["wall_time"][1], 0.0);
  int emitted = 0;
  for (const json& count : choice["accept_lengths"]) emitted += count.get<int>();
  EXPECT_EQ(emitted, first["decode_tokens"].get<int>() + second["decode_tokens"].get<int>());

  // Resumed behind the first turn, the second has the same prompt.
  {
    std::ofstream out(scratch / "cut.jsonl");
    std::ifstream all(scratch / "out/prompts.jsonl");
    for (std::string line; std::getline(all, line);) {
      if (line.find("#2") == std::string::npos) out << line << "\n";
    }
  }
  std::filesystem::rename(scratch / "cut.jsonl", scratch / "out/prompts.jsonl");
  request.existing = Existing::resume;
  ASSERT_EQ(run_bench(request), 0);
  std::ifstream again(scratch / "out/prompts.jsonl");
  for (std::string line; std::getline(again, line);) {
    const json row = json::parse(line);
    if (row["prompt"] == "mt-bench-7#2") {
      EXPECT_EQ(row["ids"], second["ids"]);
    }
  }
}

}  // namespace
}  // namespace coppice
