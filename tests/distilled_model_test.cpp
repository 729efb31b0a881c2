// Small models distilled from the target: files against what wrote them, drafts from some of the
// target's tokens, and files that do not fit.
#include "decoding/distilled_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "experiments/decoder.h"
#include "kernels/base/error.h"
#include "tests/tiny_draft.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyDraft;
using test::TinyModel;
using test::TinyShape;
using ::testing::HasSubstr;

class DistilledModelTest : public testing::Test {
 protected:
  ~DistilledModelTest() override { std::filesystem::remove_all(folder_); }

  LoadedModel load(const TinyModel& tiny) {
    LoadedModel loaded;
    loaded.tokenizer = std::make_unique<Tokenizer>(tiny.tokenizer());
    loaded.model = std::make_unique<Model>(tiny.source(), *backend_);
    return loaded;
  }
  LoadedModel load(const TinyDraft& draft, const LoadedModel& target) {
    std::filesystem::create_directories(folder_);
    draft.write(folder_ / "draft.safetensors");
    return load_draft(folder_ / "draft.safetensors", target, *backend_);
  }
  static MethodSpec chain(std::string rule = "") {
    return {.method = "draft_model",
            .rule = std::move(rule),
            .budget = kBudgetAll,
            .options = {{"draft_length", int64_t{3}, "test"}}};
  }
  static Request request(int number, float temperature) {
    Request request;
    for (int t = 0; t < 3 + 9 * number; ++t) {
      request.prompt.push_back(1 + (t * (number + 2)) % 11);
    }
    request.stop.max_new_tokens = 40;
    request.sampling.temperature = temperature;
    request.sampling.request = static_cast<uint32_t>(number);
    return request;
  }
  /// Texts of four requests that are chunked, preempted and share few pages.
  std::vector<std::vector<int32_t>> decode(const MethodSpec& spec, const LoadedModel& target,
                                           const LoadedModel* draft, float temperature, int batch,
                                           const std::function<void(Engine&)>& watch = {}) {
    Decoder decoder(spec, target, draft, *backend_,
                    {.sequences = batch, .context = 128, .pages = 10, .chunk_rows = 7},
                    temperature);
    Engine& engine = decoder.engine();
    if (watch) watch(engine);
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(engine.submit(request(i, temperature)));
    for (int step = 0; engine.step(); ++step) {
      engine.cache().poison_uncommitted();
      if (step == 9 || step == 23) engine.preempt(ids[1]);
    }
    std::vector<std::vector<int32_t>> texts;
    for (const RequestId id : ids) texts.push_back(engine.answer(id).ids);
    return texts;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "coppice_distilled_model_test";
  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 1});
  const std::vector<int32_t> some_ = {1, 2, 3, 5, 8, 13, 17, 21, 22, 30, 31, 34, 40, 41, 55, 60};
};

// Every part of a layer is read, and what was accepted, rejected, chunked or preempted leaves the
// draft's cache right: with all of the target's layers it drafts the target's own text.
TEST_F(DistilledModelTest, WithAllOfTheTargetsLayersItDraftsTheTargetsText) {
  for (const TinyShape& shape :
       {TinyShape{.type = DType::q8_0, .sharpness = 4.0f},
        TinyShape{.biases = true, .type = DType::q8_0, .sharpness = 4.0f},
        TinyShape{.gemma_like = true, .type = DType::q8_0, .sharpness = 4.0f}}) {
    const TinyModel tiny(shape);
    const LoadedModel target = load(tiny);
    const LoadedModel draft =
        load(TinyDraft(tiny.source(), describe_target(*target.model), {0, 1, 2}), target);
    EXPECT_EQ(draft.tokenizer, target.tokenizer);
    for (const float temperature : {0.0f, 1.0f}) {
      int decoding = 0, full = 0;
      const auto texts = decode(chain(), target, &draft, temperature, 3, [&](Engine& engine) {
        engine.on_step = [&](const StepRecord& step) {
          if (step.drafted < 3) return;
          ++decoding;
          full += step.accepted == 3 ? 1 : 0;
        };
      });
      EXPECT_EQ(texts, decode({}, target, nullptr, temperature, 1));
      EXPECT_EQ(full, decoding) << tiny.source().config.architecture << " at " << temperature;
      EXPECT_GT(decoding, 30);
    }
  }
}

// The whole target again, but for the tokens it may draft: the first draft is right wherever the
// target's own token is among them, and wrong elsewhere.
TEST_F(DistilledModelTest, DraftsFromItsOwnTokensAlone) {
  const TinyModel tiny({.type = DType::q8_0, .sharpness = 4.0f});
  const LoadedModel target = load(tiny);
  const LoadedModel draft =
      load(TinyDraft(tiny.source(), describe_target(*target.model), {0, 1, 2}, some_), target);
  const auto among = [&](int32_t id) { return std::binary_search(some_.begin(), some_.end(), id); };
  const auto expected = decode({}, target, nullptr, 0.0f, 1);
  int right = 0, wrong = 0;
  const auto watch = [&](Engine& engine) {
    engine.on_judged = [&](const JudgedStep& step) {
      if (step.tree->size() == 1) return;
      const int number = static_cast<int>(step.id) - 1;
      const size_t certain = engine.answer(step.id).ids.size();
      const int32_t next = expected[static_cast<size_t>(number)][certain];
      EXPECT_EQ(step.tree->token(1) == next, among(next));
      (among(next) ? right : wrong) += 1;
      for (int node = 1; node < step.tree->size(); ++node) {
        EXPECT_TRUE(among(step.tree->token(node)));
      }
    };
  };
  EXPECT_EQ(decode(chain(), target, &draft, 0.0f, 2, watch), expected);
  EXPECT_GT(right, 10);
  EXPECT_GT(wrong, 10);
}

// Two of three layers: whatever they guess, in whatever shape, the text is the baseline's, and q
// stands at the target's ids.
TEST_F(DistilledModelTest, AnyDraftGivesTheBaselinesText) {
  const TinyModel tiny({.type = DType::q8_0, .sharpness = 4.0f});
  const LoadedModel target = load(tiny);
  const LoadedModel draft =
      load(TinyDraft(tiny.source(), describe_target(*target.model), {0, 2}, some_), target);
  MethodSpec dynamic{.method = "draft_model",
                     .budget = kBudgetAll,
                     .options = {{"shape", std::string("dynamic"), "test"},
                                 {"nodes", int64_t{9}, "test"},
                                 {"top_k", int64_t{3}, "test"}}};
  for (const float temperature : {0.0f, 1.0f}) {
    const auto expected = decode({}, target, nullptr, temperature, 1);
    for (const MethodSpec& method : {chain(), dynamic}) {
      EXPECT_EQ(decode(method, target, &draft, temperature, 1), expected);
      EXPECT_EQ(decode(method, target, &draft, temperature, 3), expected);
    }
  }
  int rows = 0;
  decode(chain("rejection"), target, &draft, 1.0f, 2, [&](Engine& engine) {
    engine.on_judged = [&](const JudgedStep& step) {
      for (int row = 0; row < step.tree->q.size(); ++row, ++rows) {
        const QRows::Row q = step.tree->q.row(row);
        float inside = 0.0f;
        for (const int32_t id : some_) inside += q.probability(id);
        EXPECT_NEAR(inside, 1.0f, 1e-4f);
      }
    };
  });
  EXPECT_GT(rows, 50);
}

TEST_F(DistilledModelTest, AFileThatDoesNotFitIsRefusedWithWhatDiffers) {
  const TinyModel tiny({.type = DType::q8_0}), other({.type = DType::q8_0, .seed = 2}),
      deeper({.layers = 4, .type = DType::q8_0});
  const LoadedModel target = load(tiny);
  const HeadTarget here = describe_target(*target.model);
  const auto refusal = [&](const TinyDraft& draft, const std::string& method = "draft_model") {
    try {
      const LoadedModel loaded = load(draft, target);
      Decoder({.method = method}, target, &loaded, *backend_, {.context = 64}, 0.0f);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto made_for = [&](const TinyModel& model) {
    return TinyDraft(model.source(), describe_target(*load(model).model), {0, 2});
  };
  const TinyDraft fitting(tiny.source(), here, {0, 2}, some_);
  EXPECT_EQ(refusal(fitting), "accepted");
  EXPECT_THAT(refusal(fitting, "universal_draft"), HasSubstr("use method 'draft_model'"));
  EXPECT_THAT(refusal(made_for(deeper)), HasSubstr("layers 4, here 3"));
  EXPECT_THAT(refusal(made_for(other)), HasSubstr("weights "));
  for (size_t i = 0; i < fitting.tensors.size(); ++i) {
    TinyDraft lacking(tiny.source(), here, {0, 2}, some_);
    const std::string name = lacking.tensors[i].name;
    lacking.tensors.erase(lacking.tensors.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_THAT(refusal(lacking), HasSubstr(name));
  }
  const auto changed = [&](const std::function<void(TinyDraft&)>& change) {
    TinyDraft made(tiny.source(), here, {0, 2}, some_);
    change(made);
    return refusal(made);
  };
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.config.layers = {}; }), HasSubstr("of nothing"));
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.config.layers = {0}; }),
              HasSubstr("1 layers like the target's have 12"));
  EXPECT_THAT(changed([](TinyDraft& draft) {
                draft.config.layers = {0, 3};
              }),
              HasSubstr("the target's layers are 0..2"));
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.d2t[3] = -3; }),
              HasSubstr("expected ascending ids"));
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.d2t.clear(); }), HasSubstr("'d2t' is missing"));
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.config.draft_vocabulary = 15; }),
              HasSubstr("'d2t'"));
  EXPECT_THAT(changed([](TinyDraft& draft) { draft.config.kind = "medusa"; }),
              HasSubstr("of nothing"));
  try {
    load_draft("", target, *backend_);
    FAIL() << "a draft of another model comes with the project";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no draft model for"));
    EXPECT_THAT(error.what(), HasSubstr("--draft-model FILE"));
  }
  const MethodSpec medusa{.method = "medusa",
                          .options = {{"head", (folder_ / "draft.safetensors").string(), "test"}}};
  fitting.write(folder_ / "draft.safetensors");
  try {
    Decoder(medusa, target, nullptr, *backend_, {.context = 64}, 0.0f);
    FAIL() << "taken for heads";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("give it with --draft-model"));
  }
}

}  // namespace
}  // namespace coppice
