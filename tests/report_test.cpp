// From scripted steps with known counts to every figure of a summary, and to the report's text.
#include "experiments/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A decode step of one sequence that takes `ms`, a quarter in each phase.
StepRecord step(int drafted, int reached, int accepted, int emitted, double ms) {
  StepRecord s;
  s.trunk = 1;
  s.rows = 1 + drafted;
  s.drafted = drafted;
  s.reached = reached;
  s.accepted = accepted;
  s.emitted = emitted;
  s.draft_ms = s.target_ms = s.judge_ms = s.other_ms = ms / 4;
  return s;
}
StepRecord prefill(int trunk) {
  StepRecord s = step(0, 0, 0, 1, 400);
  s.prefill = true;
  s.trunk = s.rows = trunk;
  return s;
}

PromptRow row(std::string prompt, std::string category, std::string arm,
              const std::vector<StepRecord>& steps, std::vector<int32_t> ids) {
  PromptRow out;
  out.prompt = std::move(prompt);
  out.category = std::move(category);
  out.arm = std::move(arm);
  out.finish = "length";
  out.ids = std::move(ids);
  for (const StepRecord& s : steps) add_step(out, s);
  out.latency_ms = out.decode_ms;
  return out;
}

const std::vector<ArmInfo> kArms = {{"baseline", "autoregressive", "greedy", true},
                                    {"lookup", "prompt_lookup", "greedy", true}};

/// Two prompts, 4 and 2 decode tokens. Baseline steps take 8 ms; the method decodes the first
/// prompt in two steps of 10 ms (accepting 2 of 3, then nothing of no draft), the second in one of
/// 12 ms.
std::vector<PromptRow> scripted_rows() {
  std::vector<PromptRow> rows;
  rows.push_back(row("a", "qa", "baseline",
                     {prefill(7), step(0, 0, 0, 1, 8), step(0, 0, 0, 1, 8), step(0, 0, 0, 1, 8),
                      step(0, 0, 0, 1, 8)},
                     {1, 2, 3, 4, 5}));
  rows.push_back(row("b", "code", "baseline",
                     {prefill(5), step(0, 0, 0, 1, 8), step(0, 0, 0, 1, 8)}, {1, 2, 3}));
  rows.push_back(row("a", "qa", "lookup", {prefill(7), step(3, 3, 2, 3, 10), step(0, 0, 0, 1, 10)},
                     {1, 2, 3, 4, 5}));
  rows.push_back(row("b", "code", "lookup", {prefill(5), step(4, 2, 1, 2, 12)}, {1, 9, 3}));
  rows[0].ttft_ms = 100;
  rows[1].ttft_ms = 200;
  rows[2].ttft_ms = 110;
  rows[3].ttft_ms = 210;
  return rows;
}

ordered_json manifest() {
  return {{"model", {{"name", "toy"}, {"file", "toy.gguf"}}},
          {"machine", {{"cpu", "abacus"}}},
          {"backend", "reference, 1 thread"},
          {"config",
           {{"bench",
             {{"name", "quickstart"}, {"max_new_tokens", 5}, {"batch", 1}, {"memory", "fresh"}}},
            {"sampling", {{"temperature", 0.0}}}}},
          {"prompts", {"a", "b"}}};
}

TEST(PromptRow, CountsWhatStepsDid) {
  const PromptRow r = scripted_rows()[2];
  EXPECT_EQ(r.steps, 2);  // the prefill's passes are not decoding
  EXPECT_EQ(r.steps_without_draft, 1);
  EXPECT_EQ(r.decode_tokens, 4);
  EXPECT_DOUBLE_EQ(r.decode_ms, 20);
  EXPECT_DOUBLE_EQ(r.phase.draft, 5);
  EXPECT_EQ(r.rows, 5);
  EXPECT_EQ(r.drafted, 3);
  EXPECT_EQ(r.accepted, 2);
  EXPECT_EQ(r.discarded, 0);
  EXPECT_THAT(r.reached_at, ElementsAre(1, 1, 1));
  EXPECT_THAT(r.accepted_at, ElementsAre(1, 1));
}

TEST(PromptRow, AcceptedTokensBehindAStopAreDiscardedNotEmitted) {
  // Five drafts accepted, the second token ends the answer.
  const PromptRow r = row("a", "qa", "x", {step(5, 5, 5, 2, 10)}, {});
  EXPECT_EQ(r.decode_tokens, 2);
  EXPECT_EQ(r.accepted, 5);
  EXPECT_EQ(r.discarded, 3);
}

TEST(PromptRow, DraftedIsCountedWhereItHappens) {
  // Steps of 4, 0 and 1 drafts, not steps x 4.
  const PromptRow r =
      row("a", "qa", "x", {step(4, 1, 0, 1, 1), step(0, 0, 0, 1, 1), step(1, 1, 1, 2, 1)}, {});
  EXPECT_EQ(r.drafted, 5);
  EXPECT_EQ(r.steps_without_draft, 1);
}

TEST(PromptRow, AStepsTimeIsSharedByItsBatch) {
  StepRecord s = step(0, 0, 0, 1, 8);
  s.batch = 4;
  const PromptRow r = row("a", "qa", "x", {s, s}, {});
  EXPECT_DOUBLE_EQ(r.decode_ms, 4);
  EXPECT_DOUBLE_EQ(r.phase.other, 1);
}

TEST(PromptRow, GoesThroughJsonUnchanged) {
  const PromptRow r = scripted_rows()[3];
  const ordered_json json = row_to_json(r);
  const PromptRow back = row_from_json(nlohmann::json::parse(json.dump()), "x");
  EXPECT_EQ(row_to_json(back), json);
  EXPECT_THAT(back.ids, ElementsAre(1, 9, 3));
  nlohmann::json lacking = json;
  lacking.erase("steps");
  try {
    row_from_json(lacking, "prompts.jsonl:3");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("prompts.jsonl:3: steps: is missing"));
  }
}

TEST(PromptRow, AStepsLineHoldsTheTreeOnlyWhenItWasRecorded) {
  const PromptRow r = scripted_rows()[2];
  StepRecord s = step(1, 1, 1, 2, 4);
  EXPECT_FALSE(step_to_json(s, r).contains("tree_tokens"));
  s.tree_tokens = {5, 6};
  s.tree_parents = {-1, 0};
  const ordered_json json = step_to_json(s, r);
  EXPECT_EQ(json["prompt"], "a");
  EXPECT_EQ(json["arm"], "lookup");
  EXPECT_EQ(json["tree_parents"], ordered_json({-1, 0}));
}

TEST(Summary, EveryFigureOfTheScript) {
  const auto rows = scripted_rows();
  const Summary s = summarise(rows, kArms);
  EXPECT_EQ(s.baseline.prompts, 2);
  EXPECT_EQ(s.baseline.steps, 6);
  EXPECT_DOUBLE_EQ(*s.baseline.decode_tokens_per_s, 125);  // 6 tokens in 48 ms
  EXPECT_DOUBLE_EQ(*s.baseline.tokens_per_step, 1);
  EXPECT_DOUBLE_EQ(*s.baseline.ttft_ms.p50, 150);
  EXPECT_DOUBLE_EQ(*s.baseline.tpot_ms.p99, 8);

  ASSERT_EQ(s.methods.size(), 1u);
  const MethodSummary& m = s.methods[0];
  EXPECT_EQ(m.prompts, 2);
  EXPECT_DOUBLE_EQ(m.speedup->value, 48.0 / 32.0);
  EXPECT_DOUBLE_EQ(m.speedup->ci95->low, 16.0 / 12.0);   // prompt b drawn twice
  EXPECT_DOUBLE_EQ(m.speedup->ci95->high, 32.0 / 20.0);  // prompt a drawn twice
  EXPECT_DOUBLE_EQ(*m.tokens_per_step, 2);               // 6 tokens in 3 passes
  EXPECT_EQ(m.drafted, 7);
  EXPECT_EQ(m.accepted, 3);
  EXPECT_EQ(m.discarded, 0);
  EXPECT_EQ(m.steps, 3);
  EXPECT_EQ(m.steps_without_draft, 1);
  EXPECT_DOUBLE_EQ(*m.rows_per_step, 10.0 / 3.0);
  EXPECT_DOUBLE_EQ(*m.step_cost_ratio, (32.0 / 3.0) / 8.0);
  EXPECT_DOUBLE_EQ(m.phase_ms->draft, 8.0 / 3.0);
  EXPECT_DOUBLE_EQ(m.phase_ms->other, 8.0 / 3.0);
  EXPECT_DOUBLE_EQ(*m.decode_tokens_per_s, 1000.0 * 6 / 32);
  EXPECT_DOUBLE_EQ(*m.ttft_ms.p50, 160);
  // Position 1: accepted in both drafting steps; 2: in one of two; 3: in none of one.
  ASSERT_EQ(m.acceptance_by_position.size(), 3u);
  EXPECT_DOUBLE_EQ(*m.acceptance_by_position[0], 1);
  EXPECT_DOUBLE_EQ(*m.acceptance_by_position[1], 0.5);
  EXPECT_DOUBLE_EQ(*m.acceptance_by_position[2], 0);
  EXPECT_DOUBLE_EQ(*m.identical_rate, 0.5);
  ASSERT_EQ(m.divergences.size(), 1u);
  EXPECT_EQ(m.divergences[0].prompt, "b");
  EXPECT_EQ(m.divergences[0].token, 1);
  ASSERT_EQ(m.by_category.size(), 2u);
  EXPECT_DOUBLE_EQ(m.by_category.at("qa").speedup->value, 1.6);
  EXPECT_FALSE(m.by_category.at("qa").speedup->ci95);  // one prompt
  EXPECT_DOUBLE_EQ(*m.by_category.at("code").tokens_per_step, 2);
  EXPECT_EQ(m.by_category.at("code").prompts, 1);
  EXPECT_TRUE(s.failures.empty());
}

TEST(Summary, AcceptanceIsZeroHalfAndOne) {
  // (accepted + 1) / (drafted + 1) would say 0.2, 0.6, 1.
  for (const auto& [accepted, share] : {std::pair{0, 0.0}, {2, 0.5}, {4, 1.0}}) {
    const PromptRow r =
        row("a", "qa", "x", {step(4, std::min(accepted + 1, 4), accepted, accepted + 1, 1)}, {});
    EXPECT_DOUBLE_EQ(static_cast<double>(r.accepted) / static_cast<double>(r.drafted), share);
  }
}

TEST(Summary, AnArmAgainstItselfIsExactlyOne) {
  auto rows = scripted_rows();
  rows.resize(2);
  for (int i = 0; i < 2; ++i) {
    rows.push_back(rows[static_cast<size_t>(i)]);
    rows.back().arm = "lookup";
  }
  const MethodSummary m = summarise(rows, kArms).methods[0];
  EXPECT_EQ(m.speedup->value, 1);
  EXPECT_EQ(m.speedup->ci95->low, 1);
  EXPECT_EQ(m.speedup->ci95->high, 1);
  EXPECT_EQ(*m.step_cost_ratio, 1);
  EXPECT_EQ(*m.identical_rate, 1);
}

TEST(Summary, AnswersOfUnequalLengthAreComparedOverTheSameTokens) {
  const std::vector<PromptRow> rows = {
      row("a", "qa", "baseline", {step(0, 0, 0, 1, 8), step(0, 0, 0, 1, 8)}, {1, 2}),
      row("a", "qa", "lookup", {step(4, 4, 3, 4, 16)}, {1, 2, 3, 4})};
  // Half of the method's tokens: half of its time, against 16 ms.
  EXPECT_DOUBLE_EQ(summarise(rows, kArms).methods[0].speedup->value, 2);
}

TEST(Summary, FailedAnswersAreListedAndCountForNothing) {
  auto rows = scripted_rows();
  rows[3].error = "logits hold a NaN";
  const Summary s = summarise(rows, kArms);
  EXPECT_EQ(s.methods[0].prompts, 1);
  EXPECT_DOUBLE_EQ(s.methods[0].speedup->value, 1.6);
  ASSERT_EQ(s.failures.size(), 1u);
  EXPECT_EQ(s.failures[0].prompt, "b");
  const std::string report = make_report(s, manifest());
  EXPECT_THAT(report, HasSubstr("1 answers failed"));
  EXPECT_THAT(report, HasSubstr("- b, lookup: logits hold a NaN"));

  rows[3].error.clear();
  rows[1].error = "no baseline";  // prompt b has nothing to compare with
  EXPECT_EQ(summarise(rows, kArms).methods[0].prompts, 1);
}

TEST(PromptRow, HindsightFollowsTheAnswerDownTheProposedTree) {
  PromptRow r;
  r.prompt_tokens = 3;
  r.ids = {10, 11, 12, 13};
  StepRecord s;
  s.position = 3;  // node 0 is the answer's first token
  s.proposed_tokens = {10, 99, 11, 12, 98};
  s.proposed_parents = {-1, 0, 0, 2, 3};
  EXPECT_EQ(match_length(r, s), 2);
  s.position = 6;  // the last token: nothing follows it
  EXPECT_EQ(match_length(r, s), 0);
}

TEST(Summary, TheClairvoyantBoundKeepsWhatHindsightWouldHave) {
  std::vector<PromptRow> rows = scripted_rows();
  rows[2].matches = {3, 0};
  rows[2].pass_ms = {1.0, 1.2, 1.4, 1.6};
  rows[2].expected_ms = 5.0;
  rows[2].expected_plain_ms = 8.0;
  MethodSummary method = summarise(rows, kArms).methods[0];
  EXPECT_NEAR(method.predicted_speedup.value(), 1.6, 1e-12);
  EXPECT_NEAR(method.clairvoyant_speedup.value(), 5.0 / 2.6, 1e-9);
  rows[2].pass_ms = {1.0, 2.5, 4.0, 5.5};  // no row is worth its time, be it right
  EXPECT_NEAR(summarise(rows, kArms).methods[0].clairvoyant_speedup.value(), 1.0, 1e-9);
  // A step with a match of 3 keeps it all or nothing: at 2.2 it pays as a whole only.
  rows[2].pass_ms = {1.0, 2.1, 2.2, 2.2};
  method = summarise(rows, kArms).methods[0];
  EXPECT_NEAR(method.clairvoyant_speedup.value(), 5.0 / 3.2, 1e-9);
  EXPECT_THAT(make_report(summarise(rows, kArms), manifest()), HasSubstr("clairvoyant bound"));
}

TEST(Summary, JsonHasTheSchemasFields) {
  const auto rows = scripted_rows();
  const ordered_json json = summary_to_json(summarise(rows, kArms), manifest());
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre("schema", "model", "machine", "backend", "baseline", "methods"));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["baseline"]["ttft_ms"]["p50"], 150.0);
  EXPECT_EQ(json["baseline"]["tpot_ms"]["p90"], 8.0);
  keys.clear();
  const ordered_json& m = json["methods"][0];
  for (const auto& item : m.items()) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre("name", "rule", "lossless", "speedup", "tokens_per_step",
                                "acceptance_by_position", "drafted", "accepted",
                                "proposed_per_step", "predicted_speedup", "clairvoyant_speedup",
                                "rows_per_step", "step_cost_ratio", "phase_ms", "identical_rate",
                                "decode_tokens_per_s", "by_category"));
  EXPECT_EQ(m["speedup"]["value"], 1.5);
  EXPECT_EQ(m["speedup"]["ci95"].size(), 2u);
  EXPECT_EQ(m["acceptance_by_position"], ordered_json({1.0, 0.5, 0.0}));
  EXPECT_TRUE(m["by_category"]["qa"]["speedup"]["ci95"].is_null());
  EXPECT_EQ(ordered_json::parse(json.dump()), json);
}

TEST(Summary, WhatIsUndefinedIsNullAndNotANumber) {
  const PromptRow empty_baseline = row("a", "qa", "baseline", {prefill(3)}, {1});
  const PromptRow empty_method = row("a", "qa", "lookup", {prefill(3)}, {1});
  for (const std::vector<PromptRow>& rows :
       {std::vector<PromptRow>{}, {empty_baseline}, {empty_baseline, empty_method}}) {
    const Summary s = summarise(rows, kArms);
    const ordered_json json = summary_to_json(s, manifest());
    EXPECT_TRUE(json["methods"][0]["speedup"]["value"].is_null());
    EXPECT_TRUE(json["methods"][0]["tokens_per_step"].is_null());
    EXPECT_TRUE(json["baseline"]["decode_tokens_per_s"].is_null());
    const std::string text = json.dump() + make_report(s, manifest());
    EXPECT_THAT(text, HasSubstr("n/a"));
    for (const char* bad : {"nan", "NaN", "inf"}) EXPECT_THAT(text, Not(HasSubstr(bad)));
  }
}

TEST(Summary, NoDraftsIsNotOneTokenAStepByAccident) {
  const std::vector<PromptRow> rows = {row("a", "qa", "baseline", {step(0, 0, 0, 1, 8)}, {1}),
                                       row("a", "qa", "lookup", {step(0, 0, 0, 1, 8)}, {1})};
  const MethodSummary m = summarise(rows, kArms).methods[0];
  EXPECT_DOUBLE_EQ(*m.tokens_per_step, 1);
  EXPECT_EQ(m.drafted, 0);
  EXPECT_TRUE(m.acceptance_by_position.empty());
  EXPECT_THAT(make_report(summarise(rows, kArms), manifest()), HasSubstr("| lookup | n/a |"));
}

TEST(Report, TablesHoldTheScriptsFigures) {
  const auto rows = scripted_rows();
  const std::string report = make_report(summarise(rows, kArms), manifest());
  EXPECT_THAT(report, HasSubstr("# quickstart"));
  EXPECT_THAT(report, HasSubstr("toy (toy.gguf) on abacus, reference, 1 thread. 2 prompts"));
  EXPECT_THAT(report, HasSubstr("|---|---|---:|---:|---:|---:|"));
  EXPECT_THAT(report, HasSubstr("| baseline | greedy | 1.00 | 125.0 | 1.00 | 100.0 % |"));
  EXPECT_THAT(report, HasSubstr("| lookup | greedy | 1.50 [1.33, 1.60] | 187.5 | 2.00 | 50.0 % |"));
  EXPECT_THAT(report, HasSubstr("| lookup | 7 | 3 | 0 | 3.33 | 1 of 3 | 1.33 |"));
  EXPECT_THAT(report, HasSubstr("| lookup | 1.00 | 0.50 | 0.00 |"));
  EXPECT_THAT(report, HasSubstr("| qa | 1.60; 2.00 |"));
  EXPECT_THAT(report, HasSubstr("1 of 2 prompts differ from the baseline; first in b at token 1"));
  for (const char* term :
       {"**Speedup**", "**Tokens per step**", "**Acceptance at position i**", "**Rows per step**",
        "**Step cost**", "**Identical**", "**TTFT**", "**TPOT**", "**discarded**"}) {
    EXPECT_THAT(report, HasSubstr(term));
  }
}

TEST(Report, AnInterruptedRunSaysHowFarItCame) {
  auto rows = scripted_rows();
  std::erase_if(rows, [](const PromptRow& r) { return r.prompt == "b"; });
  EXPECT_THAT(make_report(summarise(rows, kArms), manifest()),
              HasSubstr(". 1 of 2 prompts, up to"));
}

TEST(Report, ALossyRuleIsMarked) {
  auto arms = kArms;
  arms[1].rule = "typical";
  arms[1].lossless = false;
  const auto rows = scripted_rows();
  EXPECT_THAT(headline_table(summarise(rows, arms)), HasSubstr("| typical (lossy) |"));
  arms[1].valid = false;
  EXPECT_THAT(headline_table(summarise(rows, arms)), HasSubstr("| typical (invalid) |"));
  EXPECT_EQ(summary_to_json(summarise(rows, arms), manifest())["methods"][0]["valid"], false);
}

TEST(Report, AReadmesTableIsReplacedBetweenItsMarkers) {
  const std::string readme =
      "before\n<!-- table:quickstart -->\nold\n<!-- /table -->\nafter\n"
      "<!-- table:other -->\nkept\n<!-- /table -->\n";
  const std::string once = replace_table(readme, "quickstart", "| new |\n");
  EXPECT_EQ(once,
            "before\n<!-- table:quickstart -->\n| new |\n<!-- /table -->\nafter\n"
            "<!-- table:other -->\nkept\n<!-- /table -->\n");
  EXPECT_EQ(replace_table(once, "quickstart", "| new |\n"), once);
  EXPECT_THROW(replace_table(readme, "absent", ""), Error);
  EXPECT_THROW(replace_table("<!-- table:quickstart -->", "quickstart", ""), Error);
}

}  // namespace
}  // namespace coppice
