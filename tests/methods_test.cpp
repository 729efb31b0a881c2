// Every method's drafter against its paper, and every method with every rule against the baseline:
// the same text under greedy and coupled, in any batch; repeatable under rejection.
#include "drafters/methods.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/datastore.h"
#include "drafters/draft_model.h"
#include "drafters/jacobi.h"
#include "drafters/prompt_lookup.h"
#include "experiments/decoder.h"
#include "kernels/base/error.h"
#include "tests/tiny_head.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;

std::vector<int32_t> proposal(Drafter& drafter, const std::vector<int32_t>& tokens, int budget,
                              SeqId sequence = 0) {
  TokenTree tree;
  tree.reset(tokens.back(), budget);
  DraftJob job;
  job.sequence = sequence;
  job.tokens = tokens;
  job.budget = budget;
  job.tree = &tree;
  drafter.propose({&job, 1});
  std::vector<int32_t> chain;
  for (int node = 1; node < tree.size(); ++node) {
    EXPECT_EQ(tree.parent(node), node - 1);
    chain.push_back(tree.token(node));
  }
  return chain;
}

// The definition, by search: longest n-gram first, its latest earlier occurrence.
std::vector<int32_t> searched(const std::vector<int32_t>& tokens, int max_ngram, size_t length) {
  const int size = static_cast<int>(tokens.size());
  for (int n = std::min(max_ngram, size - 1); n >= 1; --n) {
    for (int end = size - 2; end >= n - 1; --end) {
      if (!std::equal(tokens.end() - n, tokens.end(), tokens.begin() + end - n + 1)) continue;
      std::vector<int32_t> follows(tokens.begin() + end + 1, tokens.end());
      follows.resize(std::min(follows.size(), length));
      return follows;
    }
  }
  return {};
}

TEST(PromptLookup, ProposesWhatFollowedTheLatestLongestMatch) {
  PromptLookup drafter(PromptLookupOptions{.draft_length = 3});
  EXPECT_EQ(proposal(drafter, {1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3}, 64),
            (std::vector<int32_t>{4, 9, 2}));  // 1 2 3 beats the later 2 3
  drafter.forget(0, Reason::finished);
  EXPECT_EQ(proposal(drafter, {5, 6, 7}, 64), std::vector<int32_t>());
  drafter.forget(0, Reason::finished);
  EXPECT_EQ(proposal(drafter, {8, 8}, 64), (std::vector<int32_t>{8}));
  EXPECT_THROW(PromptLookup(PromptLookupOptions{.max_ngram = 2, .min_ngram = 3}), Error);
}

TEST(PromptLookup, TheIndexFindsWhatASearchFinds) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 50; ++trial) {
    PromptLookup drafter(PromptLookupOptions{.max_ngram = 4, .draft_length = 6});
    std::vector<int32_t> tokens = {0};
    for (int step = 0; step < 80; ++step) {
      const int grow = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < grow; ++i) tokens.push_back(static_cast<int32_t>(random() % 5));
      ASSERT_EQ(proposal(drafter, tokens, 64), searched(tokens, 4, 6));
    }
  }
}

// Santilli 2023, Alg. 1, followed by hand: the guesses behind the accepted prefix shift to the
// front.
TEST(Jacobi, GuessesAreTheTargetsLastAnswers) {
  Jacobi drafter(JacobiOptions{.draft_length = 3});
  const std::vector<int32_t> before = {7};
  EXPECT_EQ(proposal(drafter, before, 3), (std::vector<int32_t>{7, 7, 7}));
  TokenTree tree;
  tree.reset(7, 3);
  for (int i = 0; i < 3; ++i) tree.add({.parent = i, .token = 7});
  // The target says 7 behind node 0, then 20, 21, 22: one guess accepted, 20 emitted.
  const std::vector<int32_t> top = {7, 20, 21, 22};
  ForwardOutput output;
  output.top_k = 1;
  output.top_ids = top;
  const std::vector<int32_t> after = {7, 7, 20};
  const std::vector<int> rows = {0, 1, 2, 3}, kept = {0, 1}, path = {1};
  Observation seen;
  seen.tokens = after;
  seen.kept_rows = kept;
  seen.tree = &tree;
  seen.node_row = rows;
  seen.path = path;
  seen.output = &output;
  seen.logit_row = rows;
  drafter.observe({&seen, 1});
  EXPECT_EQ(proposal(drafter, after, 3), (std::vector<int32_t>{21, 22, 22}));
  drafter.forget(0, Reason::finished);
  EXPECT_EQ(proposal(drafter, after, 3), (std::vector<int32_t>{20, 20, 20}));
}

class MethodsTest : public testing::Test {
 protected:
  ~MethodsTest() override {
    std::filesystem::remove(store_);
    std::filesystem::remove(head_);
  }

  /// The method with its defaults, and the file that some cannot do without.
  MethodSpec spec_of(const MethodEntry& method, const LoadedModel& target) const {
    MethodSpec spec{.method = std::string(method.name)};
    if (method.name == "medusa" || method.name == "hydra" || method.name.starts_with("eagle")) {
      test::TinyHead(spec.method, describe_target(*target.model), 40).write(head_);
      spec.options = {{"head", head_.string(), "test"}};
    }
    if (method.name != "retrieval") return spec;
    std::vector<int32_t> text;
    for (int i = 0; i < 200; ++i) text.push_back(1 + (i * i + i / 7) % 40);
    text.push_back(Datastore::kEnd);
    write_datastore(store_, text, tiny_.tokenizer().vocabulary());
    spec.options = {{"datastore", store_.string(), "test"}, {"min_context", int64_t{1}, "test"}};
    return spec;
  }

  LoadedModel load(const TinyModel& tiny) {
    LoadedModel loaded;
    loaded.name = "tiny";
    loaded.tokenizer = std::make_unique<Tokenizer>(tiny.tokenizer());
    loaded.model = std::make_unique<Model>(tiny.source(), *backend_);
    return loaded;
  }

  struct Result {
    std::vector<std::vector<int32_t>> ids;
    int64_t drafted = 0, accepted = 0;
  };
  static std::vector<std::vector<int32_t>> usual_prompts() {
    std::vector<std::vector<int32_t>> prompts(9);
    for (int i = 0; i < 9; ++i) {
      for (int t = 0; t < 3 + 2 * i; ++t) {
        prompts[static_cast<size_t>(i)].push_back(1 + (t * (i + 2)) % 11);
      }
    }
    return prompts;
  }

  Result decode(const MethodSpec& spec, const LoadedModel& target, const LoadedModel* draft,
                float temperature, int batch,
                const std::vector<std::vector<int32_t>>& prompts = usual_prompts(),
                int context = 128) {
    Decoder decoder(spec, target, draft, *backend_, {.sequences = batch, .context = context},
                    temperature);
    Result result;
    decoder.engine().on_step = [&](const StepRecord& record) {
      result.drafted += record.drafted;
      result.accepted += record.accepted;
    };
    std::vector<RequestId> ids;
    for (size_t i = 0; i < prompts.size(); ++i) {
      Request request;
      request.prompt = prompts[i];
      request.stop.max_new_tokens = 30;
      request.stop.tokens = {0};
      request.sampling.temperature = temperature;
      request.sampling.repetition_penalty = i % 3 == 0 ? 1.2f : 1.0f;
      request.sampling.request = static_cast<uint32_t>(i);
      ids.push_back(decoder.engine().submit(std::move(request)));
    }
    while (decoder.engine().step()) decoder.engine().cache().poison_uncommitted();
    for (RequestId id : ids) result.ids.push_back(decoder.engine().answer(id).ids);
    return result;
  }

  const std::filesystem::path store_ =
      std::filesystem::path(testing::TempDir()) / "methods_test.store";
  const std::filesystem::path head_ =
      std::filesystem::path(testing::TempDir()) / "methods_test.safetensors";
  std::unique_ptr<Backend> backend_ = make_backend({.name = "cpu", .threads = 2});
  TinyModel tiny_{{.type = DType::q8_0, .sharpness = 4.0f}};
  TinyModel other_{{.layers = 1, .type = DType::q8_0, .sharpness = 4.0f, .seed = 3}};
};

TEST_F(MethodsTest, EveryMethodGivesTheBaselinesTextInEveryBatch) {
  const LoadedModel target = load(tiny_), other = load(other_);
  for (float temperature : {0.0f, 0.7f, 1.0f}) {
    const auto expected = decode({}, target, nullptr, temperature, 1).ids;
    for (const MethodEntry& method : methods()) {
      for (const LoadedModel* draft : {&target, &other}) {
        if (!method.needs_draft_model && draft == &other) continue;
        for (const auto& [batch, budget] : {std::pair{1, kBudgetAll}, {3, 5}, {8, kBudgetAuto}}) {
          MethodSpec spec = spec_of(method, target);
          spec.budget = budget;
          // `synthetic` would be judged by coins if no rule were named.
          spec.rule = temperature == 0.0f ? "greedy" : "coupled";
          EXPECT_EQ(decode(spec, target, draft, temperature, batch).ids, expected)
              << method.name << ", temperature " << temperature << ", batch " << batch;
        }
      }
    }
  }
}

// C031, C032, C061, C062, C064: prompts of one id, of one id many times, texts that outgrow a
// sliding window, and an end of context that falls into a draft. C020: a temperature of almost
// none.
TEST_F(MethodsTest, EdgesOfPromptWindowAndContextGiveTheBaselinesText) {
  const TinyModel windowed({.gemma_like = true, .type = DType::q8_0, .sharpness = 4.0f});
  const LoadedModel target = load(windowed);
  const std::vector<std::vector<int32_t>> prompts = {
      {10}, {1}, std::vector<int32_t>(48, 7), std::vector<int32_t>(23, 3), {5, 6, 5, 6, 5}};
  for (float temperature : {0.0f, 0.01f, 1.0f}) {
    const auto expected = decode({}, target, nullptr, temperature, 1, prompts, 64).ids;
    EXPECT_EQ(expected[2].size(), 16u);  // where the context ends
    for (const MethodEntry& method : methods()) {
      MethodSpec spec = spec_of(method, target);
      spec.rule = temperature == 0.0f ? "greedy" : "coupled";
      for (int budget : {kBudgetAll, kBudgetAuto}) {
        spec.budget = budget;
        EXPECT_EQ(decode(spec, target, &target, temperature, 3, prompts, 64).ids, expected)
            << method.name << ", temperature " << temperature;
      }
    }
  }
}

/// What a drafter remembers between requests decides its trees, and a batch the order of requests.
bool remembers(std::string_view method) {
  return method == "suffix" || method == "token_recycling";
}

TEST_F(MethodsTest, RejectionRepeatsItselfAndReducesToGreedyAtTemperatureZero) {
  const LoadedModel target = load(tiny_), other = load(other_);
  const auto greedy = decode({}, target, nullptr, 0.0f, 1).ids;
  for (const MethodEntry& method : methods()) {
    // All nodes: under `auto` the trees, and so what chance decides, follow the clock.
    MethodSpec spec = spec_of(method, target);
    spec.rule = "rejection";
    spec.budget = kBudgetAll;
    EXPECT_EQ(decode(spec, target, &other, 0.0f, 1).ids, greedy) << method.name;
    const int batch = remembers(method.name) ? 8 : 1;
    EXPECT_EQ(decode(spec, target, &other, 1.0f, batch).ids,
              decode(spec, target, &other, 1.0f, 8).ids)
        << method.name;
  }
}

// C058: a model that drafts for itself is always right, whatever the draft length.
TEST_F(MethodsTest, AModelDraftingForItselfIsAlwaysAccepted) {
  const LoadedModel target = load(tiny_);
  for (const std::string rule : {"", "rejection"}) {
    for (float temperature : {0.0f, 1.0f}) {
      for (int64_t length : {1, 2, 3, 6}) {
        const MethodSpec spec{.method = "draft_model",
                              .rule = rule,
                              .budget = kBudgetAll,  // under `auto` it may not pay to draft
                              .options = {{"draft_length", length, "test"}}};
        for (int batch : {1, 4}) {
          const Result result = decode(spec, target, &target, temperature, batch);
          EXPECT_GT(result.drafted, 0);
          EXPECT_EQ(result.accepted, result.drafted) << rule << " length " << length;
        }
      }
    }
  }
}

TEST_F(MethodsTest, AnotherVocabularyIsRefusedWithTheFirstDifference) {
  const LoadedModel target = load(tiny_);
  const TinyModel smaller({.vocabulary = 60});
  const LoadedModel draft = load(smaller);
  try {
    Decoder({.method = "draft_model"}, target, &draft, *backend_, {.context = 64}, 0.0f);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("60 tokens there, 61 in the target"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(Decoder({.method = "draft_model"}, target, nullptr, *backend_, {}, 0.0f), Error);
  EXPECT_THROW(find_method("promt_lookup"), Error);
}

}  // namespace
}  // namespace coppice
