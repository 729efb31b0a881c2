// What answers are worth: the metrics by hand, distributions against themselves, code in its
// confinement, and a run judged as a whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/bench.h"
#include "experiments/quality_metrics.h"
#include "experiments/quality_model.h"
#include "experiments/quality_run.h"
#include "experiments/sandbox.h"
#include "kernels/base/error.h"
#include "tests/scratch.h"
#include "tests/tiny_model.h"
#include "tests/tiny_model_file.h"

namespace coppice {
namespace {

using test::error_of;
using test::Scratch;
using testing::HasSubstr;
using testing::Not;

TEST(RougeL, HandComputed) {
  EXPECT_DOUBLE_EQ(rouge_l("police killed the gunman", "police kill the gunman"),
                   0.75);  // Lin 2004
  EXPECT_DOUBLE_EQ(rouge_l("the gunman kill police", "police kill the gunman"), 0.5);
  EXPECT_DOUBLE_EQ(rouge_l("The cat, sat!", "the cat sat"), 1.0);
  EXPECT_DOUBLE_EQ(rouge_l("the cat sat", "the cat is here"), 4.0 / 7.0);
  EXPECT_DOUBLE_EQ(rouge_l("", "x"), 0.0);
  EXPECT_DOUBLE_EQ(rouge_l("naïve", "naïve"), 1.0);
}

TEST(FinalNumber, IsTheLastOneOrBehindTheMark) {
  EXPECT_EQ(final_number("He has 3 and buys 1,234 more.\n#### 1,237"), "1237");
  EXPECT_EQ(final_number("so the answer is $18.00."), "18");
  EXPECT_EQ(final_number("from 2 to 5. It is 0.50 m"), "0.5");
  EXPECT_EQ(final_number("-7 degrees"), "-7");
  EXPECT_EQ(final_number("1, 2, 3"), "3");
  EXPECT_EQ(final_number("none"), std::nullopt);
  EXPECT_EQ(final_number("9 apples\n####"), std::nullopt);
}

TEST(Repetition, IsTheShareOfGramsHadBefore) {
  const std::vector<int32_t> once = {1, 2, 3, 4, 5, 6}, same(12, 7),
                             twice = {1, 2, 3, 4, 1, 2, 3, 4};
  EXPECT_EQ(repetition_rate(once), 0.0);
  EXPECT_DOUBLE_EQ(repetition_rate(same), 8.0 / 9.0);
  EXPECT_DOUBLE_EQ(repetition_rate(twice), 0.2);  // 5 grams, the first comes again
  EXPECT_EQ(repetition_rate(std::span(same).first(4)), 0.0);
}

TEST(Difference, IsTheFirstIdThatDiffers) {
  const std::vector<int32_t> a = {1, 2, 3}, b = {1, 5, 3}, longer = {1, 2, 3, 4};
  EXPECT_EQ(first_difference(a, b), 1);
  EXPECT_EQ(first_difference(a, longer), 3);
  EXPECT_EQ(first_difference(a, a), std::nullopt);
  EXPECT_TRUE(exact_match(" a  b\n", "a b"));
  EXPECT_FALSE(exact_match("ab", "a b"));
}

/// Two backends of one tiny model, and a text.
class Distributions : public testing::Test {
 protected:
  Distributions()
      : tiny_({.type = DType::q8_0}),
        reference_(make_backend({.name = "reference", .threads = 1})),
        cpu_(make_backend({.name = "cpu", .threads = 1})),
        exact_(tiny_.source(), *reference_),
        fast_(tiny_.source(), *cpu_) {
    for (int i = 0; i < 90; ++i) tokens_.push_back(1 + i * 7 % 60);
  }
  TextScorer scorer(const Model& model, Backend& backend) {
    return TextScorer(model, backend, tokens_, {.chunk = 40, .rows = 16});
  }

  test::TinyModel tiny_;
  std::unique_ptr<Backend> reference_, cpu_;
  Model exact_, fast_;
  std::vector<int32_t> tokens_;
};

TEST_F(Distributions, AModelIsNoDistanceFromItself) {
  TextScorer ours = scorer(exact_, *reference_), base = scorer(exact_, *reference_);
  const auto quality = compare_distributions(ours, tokens_, [&] { return base.next(); });
  EXPECT_EQ(quality.scored, 87);  // chunks of 40, 40 and 10 tokens
  EXPECT_EQ(quality.kl, 0.0);
  EXPECT_EQ(quality.top1_agreement, 1.0);
  const Perplexity measured = measure_perplexity(exact_, *reference_, tokens_, {.chunk = 40});
  EXPECT_NEAR(quality.nll, measured.nll, 1e-6);
  EXPECT_EQ(measured.scored, 87);
}

TEST_F(Distributions, EightBitActivationsCostALittle) {
  TextScorer ours = scorer(fast_, *cpu_), base = scorer(exact_, *reference_);
  const auto quality = compare_distributions(ours, tokens_, [&] { return base.next(); });
  EXPECT_GT(quality.kl, 0.0);
  EXPECT_LT(quality.kl, 0.05);
  EXPECT_LE(quality.kl, quality.kl_p99);
  EXPECT_LE(quality.kl_p99, quality.kl_most);
  EXPECT_GT(quality.top1_agreement, 0.8);
}

TEST_F(Distributions, SavedLogitsStandForTheModel) {
  const Scratch scratch;
  TextScorer written = scorer(exact_, *reference_);
  save_logits(scratch / "a.logits", written, tokens_, 40);
  TextScorer ours = scorer(exact_, *reference_);
  SavedLogits base(scratch / "a.logits", tokens_, 40);
  const auto quality = compare_distributions(ours, tokens_, [&] { return base.next(); });
  EXPECT_LT(quality.kl, 1e-5);  // halves
  EXPECT_NEAR(quality.nll, quality.reference_nll, 1e-3);

  EXPECT_THAT(error_of([&] { SavedLogits(scratch / "a.logits", tokens_, 41); }),
              HasSubstr("another chunk"));
  std::vector<int32_t> others = tokens_;
  others[3] = 0;
  EXPECT_THAT(error_of([&] { SavedLogits(scratch / "a.logits", others, 40); }),
              HasSubstr("another text"));
  std::ofstream(scratch / "b.logits") << "what is this, and why so long a text, one may ask?";
  EXPECT_THAT(error_of([&] { SavedLogits(scratch / "b.logits", tokens_, 40); }),
              HasSubstr("holds no logits"));
  std::filesystem::resize_file(scratch / "a.logits", 1000);
  SavedLogits cut(scratch / "a.logits", tokens_, 40);
  TextScorer again = scorer(exact_, *reference_);
  EXPECT_THAT(error_of([&] { compare_distributions(again, tokens_, [&] { return cut.next(); }); }),
              HasSubstr("ends too early"));
}

/// Sanitizers need more memory than a program may use.
SandboxVerdict run(const std::string& program, double seconds = 20) {
  return run_in_sandbox(program, {.seconds = seconds, .bytes = 512ull << 20});
}

TEST(Sandbox, RightProgramsPassAndWrongOnesSayWhy) {
  EXPECT_TRUE(run("import math, re, collections\nassert math.gcd(12, 18) == 6\n").passed);
  EXPECT_THAT(run("assert 1 + 1 == 3, 'no'\n").why, HasSubstr("AssertionError: no"));
  EXPECT_THAT(run("def f(:\n").why, HasSubstr("SyntaxError"));
}

TEST(Sandbox, NothingReachesBeyondTheProcess) {
  const Scratch scratch;
  const std::string file = (scratch / "x").string();
  std::ofstream(scratch / "kept") << "kept";
  const auto refused = [](const std::string& body) {
    return run("try:\n  " + body + "\nexcept (PermissionError, OSError) as e:\n  pass\nelse:\n" +
               "  raise SystemExit('it was allowed')\n");
  };
  EXPECT_TRUE(refused("import socket; socket.socket()").passed);
  EXPECT_TRUE(refused("open('" + file + "', 'w')").passed);
  EXPECT_TRUE(refused("open('" + (scratch / "kept").string() + "', 'r+')").passed);
  EXPECT_TRUE(refused("import os; os.unlink('" + (scratch / "kept").string() + "')").passed);
  EXPECT_TRUE(refused("import os; os.rename('" + (scratch / "kept").string() + "', '" + file + "')")
                  .passed);
  EXPECT_TRUE(refused("import os; os.mkdir('" + file + "')").passed);
  EXPECT_TRUE(refused("import os; os.kill(os.getppid(), 9)").passed);
  EXPECT_TRUE(refused("import os; os.fork()").passed);
  EXPECT_TRUE(refused("import subprocess; subprocess.run(['true'])").passed);
  EXPECT_TRUE(std::filesystem::exists(scratch / "kept"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "x"));
  // What programs need goes on working.
  EXPECT_TRUE(
      run("import threading\nt = threading.Thread(target=print)\nt.start(); t.join()\n").passed);
}

TEST(Sandbox, TimeAndMemoryEnd) {
  EXPECT_FALSE(run("while True: pass\n", 0.5).passed);
  EXPECT_THAT(run("import time\ntime.sleep(60)\n", 0.5).why, HasSubstr("took too long"));
  EXPECT_THAT(run("x = bytearray(4 << 30)\n").why, HasSubstr("MemoryError"));
}

/// A lossless arm, and a lossy one whose acceptance leaves the baseline's text.
TEST(RunQuality, JudgesEveryArm) {
  const Scratch scratch;
  test::write_tiny_model(scratch / "tiny.gguf");
  std::ofstream(scratch / "tiny.jsonl")
      << "{\"id\": \"p1\", \"prompt\": \"one two one two one\", \"reference\": \"three\"}\n"
         "{\"id\": \"p2\", \"prompt\": \"Say hello.\"}\n";
  std::ofstream(scratch / "tiny.toml")
      << "[model]\npath = '" << (scratch / "tiny.gguf").string() << "'\n[bench]\nraw = true\n"
      << "prompts = '" << (scratch / "tiny.jsonl").string() << "'\n"
      << "backend = 'reference'\nmax_new_tokens = 24\nwarmup = 0\n"
         "[[method]]\nmethod = 'prompt_lookup'\nbudget = 'all'\n"
         "[[method]]\nname = 'lossy'\nmethod = 'jacobi'\nbudget = 'all'\n"
         "rule = 'threshold'\nthreshold.top = 200\nthreshold.gap = 1000.0\n";
  ASSERT_EQ(run_bench({.config = scratch / "tiny.toml", .out = scratch / "out"}), 0);
  // Manifests name no folders; a test's model lies where the run's does.
  std::filesystem::copy(scratch / "tiny.gguf", scratch / "out/tiny.gguf");
  std::filesystem::copy(scratch / "tiny.jsonl", scratch / "out/tiny.jsonl");
  const auto rows = run_quality(scratch / "out", {});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].identical, 1.0);
  EXPECT_EQ(rows[1].identical, 1.0);
  EXPECT_FALSE(rows[1].divergence);
  EXPECT_EQ(*rows[0].nll, *rows[1].nll);
  EXPECT_EQ(rows[0].answers, 2);
  ASSERT_TRUE(rows[0].rouge_l);
  EXPECT_EQ(*rows[0].exact, 0.0);
  // Anything goes: what it lets in is less likely than the most likely tokens.
  EXPECT_FALSE(rows[2].lossless);
  EXPECT_LT(rows[2].identical, 1.0);
  ASSERT_TRUE(rows[2].divergence);
  EXPECT_GT(*rows[2].nll, *rows[0].nll);
  const std::string table = quality_table(rows).markdown();
  EXPECT_THAT(table, HasSubstr("threshold (lossy)"));
  EXPECT_THAT(table, Not(HasSubstr("GSM8K")));
  // Against another run, arm by arm.
  const auto same = run_quality(scratch / "out", {.against = scratch / "out", .score = false});
  EXPECT_EQ(same[2].identical, 1.0);
  EXPECT_FALSE(same[2].nll);
}

TEST(RunQuality, TheFrontierHoldsWhatNothingBeats) {
  AnswerQuality fast{.arm = "fast", .rule = "typical", .speedup = 2.0, .nll = 0.5};
  EXPECT_EQ(fast.worth(), -0.5);
  fast.gsm8k = 0.25;
  fast.exact = 0.75;
  EXPECT_EQ(fast.worth(), 0.5);
  AnswerQuality unscored;
  unscored.identical = 0.9;
  EXPECT_EQ(unscored.worth(), 0.9);
}

}  // namespace
}  // namespace coppice
