// The draft model in every shape: lossless text, a cache that keeps what was accepted and nothing
// else, ends of contexts, and tokens that follow the target's distribution.
#include "drafters/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "experiments/decoder.h"
#include "kernels/base/error.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;
using test::TinyShape;

OptionEntry option(const char* key, OptionValue value) {
  return {key, std::move(value), "test"};
}

struct Shape {
  std::string name;
  OptionMap options;
};
std::vector<Shape> shapes() {
  const auto text = [](const char* word) { return OptionValue(std::string(word)); };
  return {
      {"chain", {option("draft_length", int64_t{3})}},
      {"fixed",
       {option("shape", text("fixed")), option("branching", std::vector<int64_t>{3, 2, 1})}},
      {"repeating",
       {option("shape", text("fixed")), option("branching", std::vector<int64_t>{3, 2}),
        option("replacement", true)}},
      {"dynamic",
       {option("shape", text("dynamic")), option("nodes", int64_t{9}), option("depth", int64_t{3}),
        option("top_k", int64_t{3})}},
      {"sequoia",
       {option("shape", text("sequoia")), option("nodes", int64_t{9}), option("depth", int64_t{4}),
        option("acceptance", std::vector<double>{0.5, 0.2, 0.1})}},
  };
}

class DraftModelTest : public testing::Test {
 protected:
  LoadedModel load(const TinyModel& tiny) {
    LoadedModel loaded;
    loaded.tokenizer = std::make_unique<Tokenizer>(tiny.tokenizer());
    loaded.model = std::make_unique<Model>(tiny.source(), *backend_);
    return loaded;
  }
  MethodSpec spec(const Shape& shape, std::string rule = "", int budget = kBudgetAll) {
    return {.method = "draft_model", .rule = rule, .budget = budget, .options = shape.options};
  }
  Request request(int number, float temperature, int tokens) {
    Request request;
    for (int t = 0; t < 3 + 2 * number; ++t) {
      request.prompt.push_back(1 + (t * (number + 2)) % 11);
    }
    request.stop.max_new_tokens = tokens;
    request.sampling.temperature = temperature;
    request.sampling.request = static_cast<uint32_t>(number);
    return request;
  }
  std::vector<std::vector<int32_t>> decode(const MethodSpec& spec, const LoadedModel& target,
                                           const LoadedModel* draft, float temperature, int batch,
                                           std::vector<StepRecord>* steps = nullptr) {
    Decoder decoder(spec, target, draft, *backend_, {.sequences = batch, .context = 64},
                    temperature);
    Engine& engine = decoder.engine();
    if (steps != nullptr) {
      engine.on_step = [steps](const StepRecord& record) { steps->push_back(record); };
    }
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(engine.submit(request(i, temperature, 20 + 20 * i)));
    while (engine.step()) engine.cache().poison_uncommitted();
    std::vector<std::vector<int32_t>> texts;
    for (RequestId id : ids) texts.push_back(engine.answer(id).ids);
    return texts;
  }

  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 1});
  TinyModel tiny_{{.type = DType::q8_0, .sharpness = 4.0f}};
  TinyModel other_{{.layers = 1, .type = DType::q8_0, .sharpness = 4.0f, .seed = 3}};
};

// C037
TEST_F(DraftModelTest, EveryShapeGivesTheBaselinesText) {
  const LoadedModel target = load(tiny_), other = load(other_);
  for (float temperature : {0.0f, 1.0f}) {
    const auto expected = decode({}, target, nullptr, temperature, 1);
    for (const Shape& shape : shapes()) {
      for (const LoadedModel* draft : {&target, &other}) {
        EXPECT_EQ(decode(spec(shape), target, draft, temperature, 1), expected) << shape.name;
        EXPECT_EQ(decode(spec(shape, "", 4), target, draft, temperature, 3), expected)
            << shape.name;
      }
    }
  }
}

// C019, C041, C058: a model that drafts for itself is right down to the last level, in every step.
TEST_F(DraftModelTest, AModelDraftingForItselfIsAcceptedToTheLastLevel) {
  const LoadedModel target = load(tiny_);
  for (const Shape& shape : shapes()) {
    if (shape.name == "dynamic") continue;  // what is deepest may rank too low to be kept
    for (float temperature : {0.0f, 1.0f}) {
      std::vector<StepRecord> steps;
      const auto texts = decode(spec(shape), target, &target, temperature, 2, &steps);
      const TreeShape depth4 = SequoiaTrees(std::vector<double>{0.5, 0.2, 0.1}, 9, 4).shape(9, 4);
      const std::map<std::string, int> deepest = {
          {"chain", 3}, {"fixed", 3}, {"repeating", 2}, {"sequoia", depth4.depth.back()}};
      size_t full = 0, decoding = 0;
      for (const StepRecord& step : steps) {
        if (step.prefill || step.emitted == 0) continue;
        ++decoding;
        full += step.accepted == deepest.at(shape.name) ? 1 : 0;
      }
      // All but the steps that an answer's end has shortened.
      EXPECT_GE(full + texts.size(), decoding) << shape.name << " at " << temperature;
      EXPECT_GT(full, 10u);
    }
  }
}

TEST_F(DraftModelTest, ADrawnTreeRepeatsItselfInAnyBatch) {
  const LoadedModel target = load(tiny_), other = load(other_);
  for (const Shape& shape : shapes()) {
    EXPECT_EQ(decode(spec(shape, "rejection"), target, &other, 1.0f, 1),
              decode(spec(shape, "rejection"), target, &other, 1.0f, 4))
        << shape.name;
    EXPECT_EQ(decode(spec(shape, "rejection"), target, &other, 0.0f, 2),
              decode({}, target, nullptr, 0.0f, 1))
        << shape.name;
  }
}

// C149: an option has an effect or is refused.
TEST_F(DraftModelTest, AnOptionOfAnotherShapeIsRefused) {
  const LoadedModel target = load(tiny_);
  const auto refusal = [&](std::vector<OptionEntry> options) -> std::string {
    try {
      decode({.method = "draft_model", .options = std::move(options)}, target, &target, 0.0f, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal({option("draft_length", int64_t{3})}), "none");
  EXPECT_EQ(refusal({option("top_k", int64_t{10})}), "none");  // the default, as manifests have it
  EXPECT_THAT(refusal({option("top_k", int64_t{3})}),
              testing::HasSubstr("'top_k' has no effect with shape 'chain', only with dynamic"));
  EXPECT_THAT(
      refusal({option("shape", std::string("dynamic")), option("draft_length", int64_t{3})}),
      testing::HasSubstr("'draft_length' has no effect with shape 'dynamic'"));
}

// C113: the draft model's context may end long before the target's.
TEST_F(DraftModelTest, AShorterDraftContextOnlyEndsTheDrafts) {
  const LoadedModel target = load(tiny_);
  const TinyModel brief({.layers = 1, .context = 24, .type = DType::q8_0, .seed = 3});
  const LoadedModel draft = load(brief);
  const auto expected = decode({}, target, nullptr, 0.0f, 1);
  for (const Shape& shape : shapes()) {
    std::vector<StepRecord> steps;
    EXPECT_EQ(decode(spec(shape), target, &draft, 0.0f, 2, &steps), expected) << shape.name;
    int longest = 0;
    for (const StepRecord& step : steps) {
      if (step.drafted > 0) longest = std::max(longest, step.position + 1);
    }
    EXPECT_EQ(longest, 24) << shape.name;
  }
}

// C059, C127: what the target confirmed of a tree stays in the draft's cache and gives the same
// bits as a fresh one; the rest is gone; and every page comes back.
TEST_F(DraftModelTest, TheRunnerKeepsTheConfirmedPathAlone) {
  const Model model(other_.source(), *backend_);
  const std::vector<int32_t> text = {5, 9, 2, 40, 7, 11, 3, 8, 30, 31, 32, 33};
  const auto run = [](DraftRunner& runner, DraftRunner::Grown& grown) {
    DraftRunner::Grown* all[] = {&grown};
    runner.run(all);
  };
  struct Case {
    std::vector<int32_t> emitted;
    int fed;  // rows the next tree's first run needs
  };
  // The tree: 20 and 21 under node 0, 22 under each, 23 (a leaf, never fed) under 21, 22.
  for (const Case& next : {Case{{21, 22, 23, 24}, 2}, Case{{20, 60}, 1}, Case{{6}, 1},
                           Case{{21, 22}, 1}, Case{{22, 22}, 2}}) {
    DraftRunner runner(model, *backend_, 1, 64, 8, 4), fresh(model, *backend_, 1, 64, 8, 4);
    DraftRunner::Grown& grown = runner.begin(0, text);
    run(runner, grown);
    const int root = grown.root_row();
    const int left = runner.add(grown, root, 20), right = runner.add(grown, root, 21);
    EXPECT_EQ(runner.add(grown, root, 20), left);  // a repeated sibling shares the row
    run(runner, grown);
    const int deep = runner.add(grown, right, 22);
    runner.add(grown, left, 22);
    run(runner, grown);
    runner.add(grown, deep, 23);

    std::vector<int32_t> tokens = text;
    tokens.insert(tokens.end(), next.emitted.begin(), next.emitted.end());
    runner.begin(0, tokens);
    EXPECT_EQ(grown.root_row() + 1, next.fed);
    run(runner, grown);
    DraftRunner::Grown& anew = fresh.begin(0, tokens);
    run(fresh, anew);
    const auto logits = runner.logits(grown, grown.root_row());
    const auto expected = fresh.logits(anew, anew.root_row());
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), expected.size_bytes()), 0);
    runner.forget(0);
    EXPECT_EQ(runner.cache().free_pages(), runner.cache().total_pages());
  }
}

// Miao 2024, Chen 2024: whatever tree was drawn, the text has the target's own distribution.
TEST_F(DraftModelTest, DrawnTreesKeepTheTargetsDistribution) {
  const TinyShape small{.vocabulary = 5,
                        .layers = 1,
                        .dim = 32,
                        .ffn = 32,
                        .heads = 1,
                        .kv_heads = 1,
                        .head_dim = 32,
                        .sharpness = 1.5f};
  TinyShape draft_shape = small;
  draft_shape.seed = 9;
  const TinyModel target_tiny(small), draft_tiny(draft_shape);
  const LoadedModel target = load(target_tiny), draft = load(draft_tiny);
  constexpr int kTexts = 3000;
  const auto count = [&](const MethodSpec& method, uint64_t seed) {
    std::map<std::vector<int32_t>, int> counts;
    Decoder decoder(method, target, &draft, *backend_, {.sequences = 16, .context = 16}, 1.0f);
    for (int text = 0; text < kTexts; ++text) {
      Request asked;
      asked.prompt = {1, 2};
      asked.stop.max_new_tokens = 3;
      asked.sampling.temperature = 1.0f;
      asked.sampling.seed = seed;
      asked.sampling.request = static_cast<uint32_t>(text);
      decoder.engine().submit(std::move(asked));
    }
    while (decoder.engine().step()) {
    }
    for (int text = 1; text <= kTexts; ++text) {
      ++counts[decoder.engine().answer(static_cast<RequestId>(text)).ids];
    }
    return counts;
  };
  const auto baseline = count({}, 1);
  for (const Shape& shape : shapes()) {
    auto drawn = count(spec(shape, "rejection"), 2);
    // Two samples of one distribution: chi-square over the texts that are not rare.
    double chi = 0.0;
    int cells = 0, rare_a = 0, rare_b = 0;
    for (const auto& [text, a] : baseline) {
      const int b = drawn[text];
      drawn.erase(text);
      if (a + b < 16) {
        rare_a += a;
        rare_b += b;
        continue;
      }
      chi += std::pow(a - b, 2.0) / (a + b);
      ++cells;
    }
    for (const auto& [text, b] : drawn) rare_b += b;
    chi += std::pow(rare_a - rare_b, 2.0) / std::max(1, rare_a + rare_b);
    EXPECT_GT(cells, 15) << shape.name;
    EXPECT_LT(chi, cells + 4.5 * std::sqrt(2.0 * cells)) << shape.name;
  }
}

// Where rows are free every shape drafts; where a row costs as much as a pass it soon stops, but
// for a trial now and then, and the text is the same.
TEST_F(DraftModelTest, DraftsWhatPays) {
  const LoadedModel target = load(tiny_), other = load(other_);
  const auto expected = decode({}, target, nullptr, 0.0f, 1);
  for (const Shape& shape : shapes()) {
    int drafted[2] = {0, 0};
    for (const bool dear : {false, true}) {
      CostCurve costs({{1, 1.0}, {64, dear ? 64.0 : 1.0}}, 0.0, 0.0);
      AutoBudget budget(costs);
      const auto rule = make_rule("greedy");
      const auto drafter = find_method("draft_model")
                               .make(shape.options, {.target = target.model.get(),
                                                     .tokenizer = target.tokenizer.get(),
                                                     .backend = backend_.get(),
                                                     .draft_model = other.model.get(),
                                                     .draft_tokenizer = other.tokenizer.get(),
                                                     .sequences = 4,
                                                     .context = 64});
      Engine engine({.target = target.model.get(),
                     .backend = backend_.get(),
                     .rule = rule.get(),
                     .drafter = drafter.get(),
                     .budget = &budget},
                    {.sequences = 4, .context = 64, .budget = drafter->needs().most_nodes});
      engine.on_step = [&](const StepRecord& step) { drafted[dear] += step.drafted; };
      std::vector<RequestId> ids;
      for (int i = 0; i < 4; ++i) ids.push_back(engine.submit(request(i, 0.0f, 20 + 20 * i)));
      while (engine.step()) {
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(engine.answer(ids[i]).ids, expected[i]) << shape.name;
      }
    }
    EXPECT_GT(drafted[0], 60) << shape.name;
    EXPECT_LT(drafted[1], drafted[0] / 4) << shape.name;
  }
}

TEST_F(DraftModelTest, RefusesTreesThatAreNone) {
  const LoadedModel target = load(tiny_);
  const auto make = [&](OptionMap options) {
    const MethodSpec method{.method = "draft_model", .options = std::move(options)};
    Decoder(method, target, &target, *backend_, {.context = 64}, 0.0f);
  };
  EXPECT_THROW(make({option("branching", std::vector<int64_t>{})}), Error);
  EXPECT_THROW(make({option("branching", std::vector<int64_t>{8, 8, 8})}), Error);
  EXPECT_THROW(make({option("acceptance", std::vector<double>{})}), Error);
  EXPECT_THROW(make({option("shape", std::string("star"))}), Error);
}

}  // namespace
}  // namespace coppice
