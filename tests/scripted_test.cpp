// Drafters that are told what to do: the script, the oracle and the filler chain; and the
// explainer, which shows what came of it.
#include "drafters/scripted.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "drafters/oracle.h"
#include "experiments/decoder.h"
#include "experiments/explain.h"
#include "experiments/replay.h"
#include "kernels/base/error.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int32_t>;

TokenTree grown(Drafter& drafter, const Ids& tokens, int budget = 16) {
  TokenTree tree;
  tree.reset(tokens.back(), budget);
  DraftJob job;
  job.tokens = tokens;
  job.budget = budget;
  job.tree = &tree;
  drafter.propose({&job, 1});
  return tree;
}

TEST(Scripted, ProposesStepByStep) {
  Scripted drafter(ScriptedOptions{.steps = {"17 4 9|17 5 | ?3 8", "", "6"}}, 20);
  EXPECT_EQ(drafter.needs().most_nodes, 6);
  const TokenTree tree = grown(drafter, {1});
  ASSERT_EQ(tree.size(), 7);
  const int tokens[] = {1, 17, 4, 9, 5, 3, 8}, parents[] = {-1, 0, 1, 2, 1, 0, 5};
  for (int node = 0; node < 7; ++node) {
    EXPECT_EQ(tree.token(node), tokens[node]);
    EXPECT_EQ(tree.parent(node), parents[node]);
    EXPECT_EQ(tree.role(node) == NodeRole::probe, node >= 5);
  }
  EXPECT_EQ(grown(drafter, {1, 2}).size(), 1);
  EXPECT_EQ(grown(drafter, {1, 2, 3}).token(1), 6);
  EXPECT_EQ(grown(drafter, {1, 2, 3, 4}).size(), 1);
  drafter.forget(0, Reason::finished);
  EXPECT_EQ(grown(drafter, {1}, 2).size(), 3);  // as much as there is room for
}

TEST(Scripted, RefusesWhatIsNoToken) {
  for (const char* step : {"x", "1 -2", "20", "? 1", "1.5", "99999999999"}) {
    EXPECT_THROW(Scripted(ScriptedOptions{.steps = {step}}, 20), Error) << step;
  }
  EXPECT_THROW(Scripted(ScriptedOptions{.file = "/nowhere/steps"}, 20), Error);
  EXPECT_THROW(Scripted(ScriptedOptions{.steps = {"1"}, .file = "x"}, 20), Error);
}

TEST(Oracle, FollowsTheRecordedAnswerOfItsPrompt) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("coppice-oracle-test-" + std::to_string(::getpid()));
  std::ofstream(path) << R"({"prompt_ids": [1, 2], "ids": [3, 4, 5]})"
                      << "\n"
                      << R"({"ids": [9]})"
                      << "\n"
                      << R"({"prompt_ids": [1, 2], "ids": [3, 7, 8, 9], "text": "x"})"
                      << "\n";
  Oracle oracle(OracleOptions{.depth = 2, .answers = path.string()});
  const auto proposal = [&](const Ids& tokens) {
    Ids ids;
    const TokenTree tree = grown(oracle, tokens);
    for (int node = 1; node < tree.size(); ++node) ids.push_back(tree.token(node));
    return ids;
  };
  EXPECT_THAT(proposal({1, 2, 3}), ElementsAre(4, 5));
  EXPECT_THAT(proposal({1, 2, 3, 7}), ElementsAre(8, 9));  // it was the other one
  EXPECT_THAT(proposal({1, 2, 3, 7, 8, 9}), ElementsAre());
  oracle.forget(0, Reason::finished);
  EXPECT_THAT(proposal({1, 2, 3}), ElementsAre(4, 5));
  EXPECT_THAT(proposal({2, 2}), ElementsAre());
  std::ofstream(path) << "{\"ids\": [9]}\n";
  EXPECT_THROW(Oracle(OracleOptions{.answers = path.string()}), Error);
  std::ofstream(path) << "no json\n";
  EXPECT_THROW(Oracle(OracleOptions{.answers = path.string()}), Error);
  std::filesystem::remove(path);
}

class ToldTest : public testing::Test {
 protected:
  ToldTest() {
    target_.name = "tiny";
    target_.tokenizer = std::make_unique<Tokenizer>(tiny_.tokenizer());
    target_.model = std::make_unique<Model>(tiny_.source(), *backend_);
  }
  Decoder decoder(const MethodSpec& spec, float temperature = 0.0f) {
    return Decoder(spec, target_, nullptr, *backend_, {.context = 128}, temperature);
  }
  static Request request(float temperature = 0.0f) {
    Request request;
    request.prompt = {3, 4, 5};
    request.stop.max_new_tokens = 40;
    request.sampling.temperature = temperature;
    return request;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
  test::TinyModel tiny_{{.layers = 1, .sharpness = 4.0f}};
  LoadedModel target_;
};

TEST_F(ToldTest, SyntheticAcceptanceIsForcedAndMarked) {
  Decoder sure =
      decoder({.method = "synthetic",
               .budget = kBudgetAll,
               .options = {{"draft_length", int64_t{3}, ""}},
               .rule_options = {{"acceptance", std::vector<double>{1.0, 1.0, 0.0}, ""}}});
  EXPECT_EQ(mark_of(sure.rule()), "invalid");
  const RequestId id = sure.engine().submit(request());
  while (sure.engine().step()) {
  }
  EXPECT_EQ(sure.engine().answer(id).steps, 13);  // 39 tokens, three a step
}

TEST_F(ToldTest, TheExplanationIsWhatHappened) {
  Decoder plain = decoder({});
  const RequestId id = plain.engine().submit(request());
  while (plain.engine().step()) {
  }
  const Ids text = plain.engine().answer(id).ids;
  const int32_t wrong = (text[2] + 1) % 61 == text[3] ? (text[2] + 2) % 61 : (text[2] + 1) % 61;
  // Right, then a fork of which one is right, then wrong; and a probe.
  const std::string step =
      fmt::format("{0} {1} | {0} {2} {3} | ?7", text[1], wrong, text[2], (text[3] + 1) % 61);
  Decoder told = decoder({.method = "scripted",
                          .budget = kBudgetAll,
                          .options = {{"steps", std::vector<std::string>{step}, ""}}});
  std::vector<ExplainedStep> steps;
  std::vector<StepRecord> records;
  told.engine().on_judged = [&](const JudgedStep& judged) {
    steps.push_back(explain_step(judged, *target_.tokenizer));
  };
  told.engine().on_step = [&](const StepRecord& record) { records.push_back(record); };
  told.engine().submit(request());
  told.engine().step();
  told.engine().step();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].nodes.size(), 1u);
  EXPECT_EQ(steps[0].token, text[0]);
  const ExplainedStep& at = steps[1];
  using Fate = ExplainedNode::Fate;
  ASSERT_EQ(at.nodes.size(), 6u);
  const Fate fates[] = {Fate::root,     Fate::accepted, Fate::rejected,
                        Fate::accepted, Fate::rejected, Fate::probe};
  double sum = 0.0;
  for (size_t node = 0; node < 6; ++node) {
    EXPECT_EQ(at.nodes[node].fate, fates[node]) << node;
    EXPECT_FALSE(at.nodes[node].q.has_value());
    sum += node == 2 || node == 3 ? at.nodes[node].p : 0.0;
  }
  EXPECT_GT(at.nodes[3].p, at.nodes[2].p);
  EXPECT_LE(sum, 1.0 + 1e-6);
  ASSERT_EQ(at.asked.size(), 3u);  // behind node 0, 1 and 3
  EXPECT_EQ(at.asked[2].question.node, 3);
  EXPECT_EQ(at.asked[2].question.token, text[3]);
  const std::string drawn = explained_text(at, records[1]);
  EXPECT_THAT(drawn, HasSubstr(fmt::format("└─ ✓ 3 \"<{}>\"", text[2])));
  EXPECT_THAT(drawn, HasSubstr("KV kept: 3 of 6 rows, positions 3-5"));
  const auto json = explained_json(at, records[1]);
  EXPECT_EQ(json["kv_kept"], 3);
  EXPECT_EQ(json["nodes"][4]["fate"], "rejected");
  EXPECT_EQ(json["path"], (std::vector<int>{1, 3}));
  EXPECT_TRUE(json["nodes"][1]["q"].is_null());
}

TEST_F(ToldTest, CoinsAndNoiseAreShown) {
  for (const std::string rule : {"coupled", "rejection"}) {
    Decoder told = decoder({.method = "oracle", .rule = rule, .budget = kBudgetAll}, 1.0f);
    ExplainedStep last;
    told.engine().on_judged = [&](const JudgedStep& judged) {
      last = explain_step(judged, *target_.tokenizer);
    };
    told.engine().submit(request(1.0f));
    told.engine().step();
    told.engine().step();
    ASSERT_EQ(last.nodes.size(), 5u);
    EXPECT_EQ(last.path.size(), 4u);
    for (size_t node = 1; node < 5; ++node) {
      EXPECT_EQ(last.nodes[node].q.has_value(), rule == "rejection");
      if (last.nodes[node].q) {
        EXPECT_FLOAT_EQ(*last.nodes[node].q, last.nodes[node].p);
      }
    }
    const auto json = explained_json(last, {});
    EXPECT_EQ(json["asked"][0]["kind"], rule == "coupled" ? "coupled" : "accept");
    EXPECT_EQ(json["asked"][4]["kind"], rule == "coupled" ? "coupled" : "draw");
    if (rule == "coupled") {
      EXPECT_NE(json["asked"][0]["noise"], 0.0);
    }
  }
}

TEST(CostPoints, AreLinearBetweenAndBehind) {
  const CostPoints costs = CostPoints::parse("1:1,2:1.5,4:2.5");
  EXPECT_DOUBLE_EQ(costs.of(1), 1.0);
  EXPECT_DOUBLE_EQ(costs.of(3), 2.0);
  EXPECT_DOUBLE_EQ(costs.of(6), 3.5);
  EXPECT_DOUBLE_EQ(CostPoints::parse("1:2").of(9), 2.0);
  for (const char* text : {"", "2:1", "1:1,1:2", "1:0", "1:-1", "1:x", "x", "1:1,,2:2", "1"}) {
    EXPECT_THROW(CostPoints::parse(text), Error) << text;
  }
}

// Two steps of 3 and 1 tokens over 3 and 3 rows at c(2) = 1.2, c(3) = 1.5; hindsight drafts nothing
// in the second.
TEST(PredictSpeedup, WeighsTokensAgainstRows) {
  ReplayTotals totals;
  totals.steps = 2;
  totals.emitted = 4;
  totals.steps_with_rows = {0, 0, 2};
  totals.accepted_at = {1, 1};
  totals.matches = {2, 0};
  const auto predicted = predict_speedup(totals, CostPoints::parse("1:1,2:1.2,3:1.5"));
  EXPECT_DOUBLE_EQ(predicted.speedup.value(), 4.0 / 3.0);
  EXPECT_DOUBLE_EQ(predicted.clairvoyant.value(), 4.0 / 2.5);
  EXPECT_FALSE(predict_speedup({}, CostPoints::parse("1:1")).speedup.has_value());
}

TEST(RecordedRun, AFolderWithoutOneIsRefused) {
  EXPECT_THROW(read_recorded_run(std::filesystem::temp_directory_path() / "nowhere"), Error);
}

}  // namespace
}  // namespace coppice
