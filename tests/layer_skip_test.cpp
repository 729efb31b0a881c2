// Self-speculation: which layers run, where drafting stops, and a verification that reads nothing
// of what the drafts left in the cache.
#include "drafters/layer_skip.h"

#include <gtest/gtest.h>

#include "experiments/decoder.h"
#include "kernels/base/error.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;

class LayerSkipTest : public testing::Test {
 protected:
  std::unique_ptr<LayerSkip> make(const LayerSkipOptions& options) {
    return std::make_unique<LayerSkip>(
        options, MethodParts{.target = &model_, .backend = backend_.get(), .sequences = 4});
  }
  /// Three texts, decoded together, with NaN in every slot that holds nothing committed.
  std::vector<std::vector<int32_t>> decode(Drafter* drafter, std::string_view rule_name,
                                           float temperature, std::vector<StepRecord>* steps = {}) {
    const auto rule = make_rule(rule_name);
    Engine engine(
        {.target = &model_, .backend = backend_.get(), .rule = rule.get(), .drafter = drafter},
        {.sequences = 3, .context = 96, .budget = drafter != nullptr ? 8 : 0});
    if (steps != nullptr) engine.on_step = [&](const StepRecord& s) { steps->push_back(s); };
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i) {
      Request request;
      for (int t = 0; t < 4 + 30 * i; ++t) request.prompt.push_back(1 + (t * (i + 3)) % 17);
      request.stop.max_new_tokens = 30;
      request.sampling.temperature = temperature;
      request.sampling.request = static_cast<uint32_t>(i);
      ids.push_back(engine.submit(std::move(request)));
    }
    while (engine.step()) engine.cache().poison_uncommitted();
    std::vector<std::vector<int32_t>> texts;
    for (RequestId id : ids) texts.push_back(engine.answer(id).ids);
    return texts;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 1});
  TinyModel tiny_{{.layers = 4, .gemma_like = true, .type = DType::q8_0, .sharpness = 4.0f}};
  Model model_{tiny_.source(), *backend_};
};

TEST_F(LayerSkipTest, RunsTheLayersThatAreLeft) {
  const auto layers = [&](const LayerSkipOptions& options) {
    const auto drafter = make(options);
    return std::vector<int>(drafter->layers().begin(), drafter->layers().end());
  };
  EXPECT_EQ(layers({}), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(layers({.exit = 2}), (std::vector<int>{0, 1}));
  EXPECT_EQ(layers({.skip = {2, 0}}), (std::vector<int>{1, 3}));
  EXPECT_THROW(make({.skip = {1}, .exit = 2}), Error);
  EXPECT_THROW(make({.exit = 4}), Error);
  EXPECT_THROW(make({.skip = {4}}), Error);
  EXPECT_THROW(make({.skip = {0, 1, 2, 3}}), Error);
}

/// Overwrites the drafts' K and V with NaN behind a drafter's back.
class Poisoned : public Drafter {
 public:
  explicit Poisoned(Drafter& inner) : inner_(inner) {}
  Needs needs() const override { return inner_.needs(); }
  void observe(std::span<const Observation> seen) override { inner_.observe(seen); }
  void propose(std::span<DraftJob> jobs) override {
    inner_.propose(jobs);
    jobs.front().cache->poison_uncommitted();
  }
  void forget(SeqId sequence, Reason reason) override { inner_.forget(sequence, reason); }

 private:
  Drafter& inner_;
};

// Verification writes every layer of every node before it reads one.
TEST_F(LayerSkipTest, NothingOfADraftIsReadByTheVerification) {
  for (const LayerSkipOptions& options :
       {LayerSkipOptions{.threshold = 0.0}, {.exit = 2}, {.skip = {1}, .threshold = 0.3}}) {
    for (const char* rule : {"greedy", "coupled"}) {
      const float temperature = rule[0] == 'g' ? 0.0f : 1.0f;
      const auto expected = decode(nullptr, rule, temperature);
      const auto drafter = make(options);
      EXPECT_EQ(decode(drafter.get(), rule, temperature), expected);
      const auto inner = make(options);
      Poisoned poisoned(*inner);
      std::vector<StepRecord> steps;
      EXPECT_EQ(decode(&poisoned, rule, temperature, &steps), expected);
      int accepted = 0;
      for (const StepRecord& step : steps) accepted += step.accepted;
      EXPECT_GT(accepted, 0);
    }
  }
}

// A chain that never stops is as long as asked (but at an answer's end), and one whose threshold no
// token reaches is one token long.
TEST_F(LayerSkipTest, DraftsUntilItIsUnsure) {
  const auto drafted = [&](double threshold, std::string_view rule, float temperature) {
    const auto drafter = make({.draft_length = 5, .threshold = threshold, .adapt = false});
    std::vector<StepRecord> steps;
    decode(drafter.get(), rule, temperature, &steps);
    std::vector<int> lengths;
    for (const StepRecord& step : steps) {
      if (step.drafted > 0) lengths.push_back(step.drafted);
    }
    return lengths;
  };
  for (const char* rule : {"greedy", "rejection"}) {
    const float temperature = rule[0] == 'g' ? 0.0f : 1.0f;
    const auto never = drafted(0.0, rule, temperature);
    EXPECT_GE(std::count(never.begin(), never.end(), 5), static_cast<ptrdiff_t>(never.size()) - 12);
    const auto always = drafted(1.0, rule, temperature);
    EXPECT_EQ(std::count(always.begin(), always.end(), 1), static_cast<ptrdiff_t>(always.size()));
    const auto sometimes = drafted(0.5, rule, temperature);
    EXPECT_GT(std::count(sometimes.begin(), sometimes.end(), 1), 0);
    EXPECT_GT(std::count_if(sometimes.begin(), sometimes.end(), [](int n) { return n > 1; }), 0);
  }
}

// Draft & Verify, eq. 5, by hand: everything rejected, matched = 0.5 * 0.5 = 0.25 < 0.9, so the
// threshold moves a tenth of 0.01 up; where all is accepted for long it comes down.
TEST_F(LayerSkipTest, TheThresholdFollowsAcceptance) {
  const auto unsure_at = [&](int steps, bool accepted, double threshold) {
    const auto drafter = make({.draft_length = 2, .threshold = threshold});
    TokenTree tree;
    tree.reset(1, 2);
    tree.add({.parent = 0, .token = 2});
    const std::vector<int> path = accepted ? std::vector<int>{1} : std::vector<int>{};
    Observation seen;
    seen.tree = &tree;
    seen.path = path;
    for (int i = 0; i < steps; ++i) drafter->observe({&seen, 1});
    return drafter->threshold(0);
  };
  EXPECT_NEAR(unsure_at(1, false, 0.8), 0.801, 1e-12);
  EXPECT_NEAR(unsure_at(3, true, 0.8), 0.801, 1e-12);  // 0.75, 0.875, 0.9375: two up, one down
  EXPECT_LT(unsure_at(200, true, 0.8), 0.65);
}

}  // namespace
}  // namespace coppice
