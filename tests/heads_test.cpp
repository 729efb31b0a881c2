// Heads on hidden states: against their papers in plain loops, against themselves freshly primed
// whatever was accepted, rejected, chunked or preempted before, and against files that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/kv_cache.h"
#include "experiments/decoder.h"
#include "kernels/base/error.h"
#include "tests/head_oracle.h"
#include "tests/tiny_head.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::HeadOracle;
using test::Row;
using test::TinyHead;
using test::TinyModel;
using test::TinyShape;
using ::testing::HasSubstr;

constexpr const char* kKinds[] = {"medusa", "hydra", "eagle", "eagle3"};

/// A tree as it was verified, and the certain tokens it hung under.
struct Drafted {
  std::vector<int32_t> tokens;
  std::vector<int32_t> token, parent;
  std::vector<float> score;
  bool operator==(const Drafted&) const = default;
};

class HeadsTest : public testing::Test {
 protected:
  ~HeadsTest() override { std::filesystem::remove_all(folder_); }

  LoadedModel load(const TinyModel& tiny, Backend& backend) {
    LoadedModel loaded;
    loaded.tokenizer = std::make_unique<Tokenizer>(tiny.tokenizer());
    loaded.model = std::make_unique<Model>(tiny.source(), backend);
    return loaded;
  }
  MethodSpec spec(const TinyHead& head, bool chain) {
    std::filesystem::create_directories(folder_);
    const std::string path = (folder_ / "head.safetensors").string();
    head.write(path);
    MethodSpec made{.method = head.config.kind, .budget = kBudgetAll};
    made.options = {{"head", path, "test"}};
    const bool medusa = made.method == "medusa";
    if (chain && medusa) {
      made.options.push_back({"shape", std::string("static"), "test"});
      made.options.push_back({"branching", std::vector<int64_t>{1, 1, 1}, "test"});
    } else if (chain) {
      made.options.push_back({"shape", std::string("chain"), "test"});
      made.options.push_back({"draft_length", int64_t{3}, "test"});
    } else {
      made.options.push_back({"nodes", int64_t{9}, "test"});
      made.options.push_back({"top_k", int64_t{3}, "test"});
    }
    return made;
  }
  Request request(int number, int tokens = 40) {
    Request request;
    for (int t = 0; t < 3 + 9 * number; ++t) {
      request.prompt.push_back(1 + (t * (number + 2)) % 11);
    }
    request.stop.max_new_tokens = tokens;
    return request;
  }
  /// Every tree of a run, by request.
  static void note_trees(Engine& engine, std::map<RequestId, std::vector<int32_t>>& prompts,
                         std::map<RequestId, std::vector<Drafted>>& trees) {
    engine.on_judged = [&](const JudgedStep& step) {
      if (step.tree->size() == 1) return;
      Drafted drafted;
      drafted.tokens = prompts.at(step.id);
      const std::vector<int32_t>& ids = engine.answer(step.id).ids;
      drafted.tokens.insert(drafted.tokens.end(), ids.begin(), ids.end());
      for (int node = 0; node < step.tree->size(); ++node) {
        drafted.token.push_back(step.tree->token(node));
        drafted.parent.push_back(step.tree->parent(node));
        drafted.score.push_back(step.tree->score(node));
      }
      trees[step.id].push_back(std::move(drafted));
    };
  }
  /// (position, tap) of a whole text.
  std::vector<std::vector<Row>> states(const Model& model, Backend& backend,
                                       const std::vector<int32_t>& tokens,
                                       const std::vector<int>& taps) {
    const int rows = static_cast<int>(tokens.size());
    KVCache cache(backend, model.kv_shapes(), KVCache::pages_for(rows));
    const SeqId sequence = cache.open();
    const auto tail = cache.reserve(sequence, rows);
    Workspace workspace(model, backend, {.rows = rows, .taps = static_cast<int>(taps.size())});
    PackedBatch packed;
    packed.clear();
    packed.add(tokens, nullptr, 0, cache.pages(sequence), false);
    ForwardBatch batch = packed.batch();
    batch.tap_layers = taps;
    const ForwardOutput output = model.forward(batch, cache, workspace);
    std::vector<std::vector<Row>> out(tokens.size());
    for (int row = 0; row < rows; ++row) {
      for (size_t tap = 0; tap < taps.size(); ++tap) {
        const float* state = output.tap(static_cast<int>(tap), row);
        out[static_cast<size_t>(row)].emplace_back(state, state + output.dim);
      }
    }
    return out;
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / "coppice_heads_test";
};

TEST_F(HeadsTest, EachAgreesWithItsPaperInPlainLoops) {
  const auto backend = make_backend({.name = "reference", .threads = 1});
  const TinyModel tiny({});
  const LoadedModel target = load(tiny, *backend);
  for (const char* kind : kKinds) {
    for (const int drafted : {0, 23}) {
      const TinyHead head(kind, describe_target(*target.model), drafted);
      Decoder decoder(spec(head, true), target, nullptr, *backend, {.context = 128}, 0.0f);
      Request asked = request(1, 24);
      std::map<RequestId, std::vector<int32_t>> prompts;
      std::map<RequestId, std::vector<Drafted>> trees;
      note_trees(decoder.engine(), prompts, trees);
      const RequestId id = 1;
      prompts[id] = asked.prompt;
      ASSERT_EQ(decoder.engine().submit(asked), id);
      while (decoder.engine().step()) decoder.engine().cache().poison_uncommitted();
      ASSERT_GT(trees[id].size(), 8u) << kind;

      std::vector<int32_t> text = asked.prompt;
      const std::vector<int32_t>& ids = decoder.engine().answer(id).ids;
      text.insert(text.end(), ids.begin(), ids.end());
      const auto all = states(*target.model, *backend, text, head.config.taps);
      const HeadOracle oracle(head, tiny.source());
      for (const Drafted& tree : trees[id]) {
        const size_t certain = tree.tokens.size();
        std::vector<int32_t> path = {tree.tokens.back()};
        for (size_t node = 1; node < tree.token.size(); ++node) {
          Row logits;
          if (head.config.kind == "medusa") {
            logits = oracle.medusa(all[certain - 2][0], static_cast<int>(node) - 1);
          } else if (head.config.kind == "hydra") {
            logits = oracle.hydra(all[certain - 2][0], path);
          } else {
            std::vector<int32_t> fed(tree.tokens.begin() + 1, tree.tokens.end());
            fed.insert(fed.end(), path.begin() + 1, path.end());
            logits =
                oracle.eagle({all.begin(), all.begin() + static_cast<ptrdiff_t>(certain) - 1}, fed);
          }
          const auto best = std::max_element(logits.begin(), logits.end());
          double total = 0.0, second = -1e9;
          for (auto it = logits.begin(); it != logits.end(); ++it) {
            total += std::exp(*it - *best);
            if (it != best) second = std::max(second, *it);
          }
          if (*best - second < 1e-3) break;  // either may win
          EXPECT_EQ(tree.token[node], head.target_id(static_cast<int>(best - logits.begin())))
              << kind << " node " << node;
          EXPECT_NEAR(tree.score[node], 1.0 / total, 1e-4) << kind << " node " << node;
          path.push_back(tree.token[node]);
        }
      }
    }
  }
}

// ../shared/cases.md's silent fault: the text stays right and acceptance decays. Whatever happened
// before, a drafter proposes what one proposes that has seen the same text in one piece.
TEST_F(HeadsTest, ADraftersStateIsThatOfAFreshlyPrimedOne) {
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  const TinyModel tiny({.type = DType::q8_0, .sharpness = 4.0f});
  const LoadedModel target = load(tiny, *backend);
  constexpr int kTokens = 40;
  for (const char* kind : kKinds) {
    const TinyHead head(kind, describe_target(*target.model), 31);
    const MethodSpec method = spec(head, false);
    Decoder decoder(method, target, nullptr, *backend,
                    {.sequences = 3, .context = 128, .pages = 10, .chunk_rows = 7}, 0.0f);
    Engine& engine = decoder.engine();
    std::map<RequestId, std::vector<int32_t>> prompts;
    std::map<RequestId, std::vector<Drafted>> trees;
    note_trees(engine, prompts, trees);
    for (int i = 0; i < 5; ++i) {
      const Request asked = request(i, kTokens);
      prompts[static_cast<RequestId>(i) + 1] = asked.prompt;
      engine.submit(asked);
    }
    int accepted = 0;
    engine.on_step = [&](const StepRecord& step) { accepted += step.accepted; };
    for (int step = 0; engine.step(); ++step) {
      engine.cache().poison_uncommitted();
      if (step == 9 || step == 23) engine.preempt(2);
    }
    EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
    EXPECT_GT(accepted, 0) << kind;  // else nothing was kept that could be wrong
    for (const auto& [id, drafted] : trees) {
      ASSERT_GT(drafted.size(), 5u) << kind;
      for (size_t t = 0; t < drafted.size(); t += 4) {
        const Drafted& seen = drafted[t];
        if (seen.tokens.size() == prompts[id].size()) continue;  // a prompt's last chunk of one row
        Decoder fresh(method, target, nullptr, *backend, {.context = 128}, 0.0f);
        std::map<RequestId, std::vector<int32_t>> prompt;
        std::map<RequestId, std::vector<Drafted>> anew;
        note_trees(fresh.engine(), prompt, anew);
        Request asked;
        asked.prompt.assign(seen.tokens.begin(), seen.tokens.end() - 1);
        asked.stop.max_new_tokens =
            kTokens - static_cast<int>(asked.prompt.size() - prompts[id].size());
        prompt[1] = asked.prompt;
        fresh.engine().submit(asked);
        fresh.engine().step();
        fresh.engine().step();
        ASSERT_EQ(anew[1].size(), 1u) << kind;
        if (seen.token.size() < 10) continue;  // the room in the cache was short
        EXPECT_TRUE(anew[1].front() == seen) << kind << ", request " << id << ", tree " << t;
      }
    }
  }
}

// q is scattered to the target's ids before it is judged: a text drafted from three of five tokens
// has the target's own distribution.
TEST_F(HeadsTest, ADraftVocabularyKeepsTheTargetsDistribution) {
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  const TinyModel tiny({.vocabulary = 5,
                        .layers = 1,
                        .dim = 32,
                        .ffn = 32,
                        .heads = 1,
                        .kv_heads = 1,
                        .head_dim = 32,
                        .sharpness = 1.5f});
  const LoadedModel target = load(tiny, *backend);
  constexpr int kTexts = 3000;
  const auto count = [&](const MethodSpec& method, uint64_t seed) {
    std::map<std::vector<int32_t>, int> counts;
    Decoder decoder(method, target, nullptr, *backend, {.sequences = 16, .context = 16}, 1.0f);
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
  for (const char* kind : {"hydra", "eagle3"}) {
    TinyHead head(kind, describe_target(*target.model), 3);
    for (float& value : head.tensors.at("lm_head.weight").values) value *= 0.3f;
    MethodSpec method = spec(head, true);
    method.rule = "rejection";
    auto drawn = count(method, 2);
    // Two samples of one distribution: chi-square over the texts that are not rare.
    double chi = 0.0;
    int cells = 0;
    for (const auto& [text, a] : baseline) {
      const int b = drawn[text];
      if (a + b < 16) continue;
      chi += std::pow(a - b, 2.0) / (a + b);
      ++cells;
    }
    EXPECT_GT(cells, 15) << kind;
    EXPECT_LT(chi, cells + 4.5 * std::sqrt(2.0 * cells)) << kind;
  }
}

TEST_F(HeadsTest, AHeadOfAnotherTargetIsRefusedWithWhatDiffers) {
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  const TinyModel tiny({.type = DType::q8_0}), other({.type = DType::q8_0, .seed = 2}),
      deeper({.layers = 4, .type = DType::q8_0});
  const LoadedModel target = load(tiny, *backend);
  const auto refusal = [&](const TinyHead& head, std::string method = "") {
    MethodSpec made = spec(head, true);
    if (!method.empty()) made = {.method = method, .options = {made.options.front()}};
    try {
      Decoder(made, target, nullptr, *backend, {.context = 64}, 0.0f);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const HeadTarget here = describe_target(*target.model);
  for (const char* kind : kKinds) {
    EXPECT_EQ(refusal(TinyHead(kind, here)), "accepted");
    EXPECT_THAT(refusal(TinyHead(kind, describe_target(*load(deeper, *backend).model))),
                HasSubstr("layers 4, here 3"));
    EXPECT_THAT(refusal(TinyHead(kind, describe_target(*load(other, *backend).model))),
                HasSubstr("weights "));
    EXPECT_THAT(refusal(TinyHead(kind, here), kind == kKinds[0] ? "hydra" : "medusa"),
                HasSubstr(std::string("use method '") + kind));
    TinyHead lacking(kind, here);
    lacking.tensors.erase(std::prev(lacking.tensors.end()));
    EXPECT_NE(refusal(lacking), "accepted") << kind;
    TinyHead unordered(kind, here, 20);
    unordered.d2t[3] = -3;
    EXPECT_THAT(refusal(unordered), HasSubstr("expected ascending ids"));
    TinyHead beyond(kind, here, 20);
    beyond.d2t.back() = 1000;
    EXPECT_THAT(refusal(beyond), HasSubstr("expected ascending ids"));
    TinyHead unmapped(kind, here, 20);
    unmapped.d2t.clear();
    EXPECT_THAT(refusal(unmapped), HasSubstr("'d2t' is missing"));
    EXPECT_THROW(Decoder({.method = kind}, target, nullptr, *backend, {.context = 64}, 0.0f),
                 Error);
  }
}

// The authors' own files: names and shapes as they write them, config.json beside, no record of the
// target.
TEST_F(HeadsTest, PublishedCheckpointsLoadAndDraft) {
  const auto backend = make_backend({.name = "cpu", .threads = 1});
  const TinyModel tiny({.layers = 6, .type = DType::q8_0, .sharpness = 4.0f});
  const LoadedModel target = load(tiny, *backend);
  const HeadTarget here = describe_target(*target.model);
  std::filesystem::create_directories(folder_);
  const std::string path = (folder_ / "published.safetensors").string();
  const auto drafted = [&](const std::string& method) {
    Decoder decoder({.method = method, .budget = kBudgetAll, .options = {{"head", path, "test"}}},
                    target, nullptr, *backend, {.context = 128}, 0.0f);
    int count = 0;
    decoder.engine().on_step = [&](const StepRecord& step) { count += step.drafted; };
    decoder.engine().submit(request(1, 12));
    while (decoder.engine().step()) {
    }
    return count;
  };
  const auto write_config = [&](const std::string& extra) {
    std::ofstream(folder_ / "config.json")
        << R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"vocab_size":61,)"
        << R"("num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,)"
        << R"("intermediate_size":96,"rms_norm_eps":1e-5,"rope_theta":10000.0)" << extra << "}";
  };
  for (const std::string prefix : {"", "medusa_head."}) {
    TinyHead medusa("medusa", here);
    for (int head = 0; head < medusa.config.count; ++head) {
      medusa.add(std::to_string(head) + ".2.weight", 61, 64);  // each its own output layer
    }
    medusa.write(path, prefix, true);
    EXPECT_GT(drafted("medusa"), 0);
  }
  TinyHead eagle("eagle", here);
  eagle.add("embed_tokens.weight", 61, 64);
  eagle.write(path, "", true);
  write_config("");
  EXPECT_GT(drafted("eagle"), 0);
  write_config(R"(,"rope_scaling":{"rope_type":"llama3"})");
  EXPECT_THROW(drafted("eagle"), Error);
  TinyHead eagle3("eagle3", here, 20);
  eagle3.write(path, "", true);
  write_config(R"(,"draft_vocab_size":20,"rope_scaling":null)");
  EXPECT_GT(drafted("eagle3"), 0);
  write_config(R"(,"draft_vocab_size":21)");
  EXPECT_THROW(drafted("eagle3"), Error);
  std::filesystem::remove(folder_ / "config.json");
  EXPECT_THROW(drafted("eagle3"), Error);
}

TEST(DraftVocabulary, SpreadsLogitsToTheTargetsIds) {
  DraftVocabulary some({1, 4}, 6), all({}, 3);
  const std::vector<float> two = {0.5f, -2.0f}, three = {1.0f, 2.0f, 3.0f};
  const float none = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(some.spread(two), ::testing::ElementsAre(none, 0.5f, none, none, -2.0f, none));
  EXPECT_EQ(all.spread(three).data(), three.data());
}

TEST(TensorColumns, CutsWholeBlocks) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const TensorView whole{DType::f32, reinterpret_cast<const std::byte*>(values.data()), 2, 3};
  const TensorColumns part(whole, 1, 2);
  std::vector<float> row(2);
  dequantise_row(part.view, 1, row);
  EXPECT_THAT(row, ::testing::ElementsAre(5.0f, 6.0f));
}

}  // namespace
}  // namespace coppice
