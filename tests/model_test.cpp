// The forward pass on small random models of every architecture: a token's logits are the same bits
// alone, in a tree, in a chunk of any size, beside other sequences and for any thread count, on
// every backend and dispatch target of the machine.
#include "core/model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;
using test::TinyShape;

struct Setting {
  std::string backend, target;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const BackendEntry& entry : backends()) {
    for (std::string_view target : entry.targets()) {
      all.push_back({std::string(entry.name), std::string(target)});
    }
  }
  return all;
}

const TinyShape kShapes[] = {
    {.seed = 1},
    {.type = DType::q8_0, .seed = 2},
    {.biases = true, .seed = 3},
    {.gemma_like = true, .seed = 4},
};

// One row of a step, and what it hangs under: an earlier row of the step, or -1.
struct Row {
  int32_t token;
  int parent;
};

class ModelTest : public testing::TestWithParam<std::tuple<Setting, int>> {
 protected:
  const TinyShape& shape() const { return kShapes[std::get<1>(GetParam())]; }
  std::unique_ptr<Backend> backend(int threads) const {
    const Setting& setting = std::get<0>(GetParam());
    return make_backend({.name = setting.backend, .threads = threads, .target = setting.target});
  }

  // Runs one step of one sequence and returns every row's logits; keeps the rows in `kept`.
  static std::vector<std::vector<float>> run(const Model& model, KVCache& cache,
                                             Workspace& workspace, SeqId sequence,
                                             const std::vector<Row>& rows,
                                             const std::vector<int>& kept) {
    std::vector<int32_t> token, parent, wanted;
    for (size_t i = 0; i < rows.size(); ++i) {
      token.push_back(rows[i].token);
      parent.push_back(rows[i].parent);
      wanted.push_back(static_cast<int32_t>(i));
    }
    const int committed = cache.committed(sequence);
    auto tail = cache.reserve(sequence, static_cast<int>(rows.size()));
    EXPECT_TRUE(tail);
    const SequenceRows place{0, static_cast<int>(rows.size()), committed, cache.pages(sequence)};
    const ForwardOutput out = model.forward(
        {.token = token, .parent = parent, .sequences = {&place, 1}, .logit_rows = wanted}, cache,
        workspace);
    std::vector<std::vector<float>> logits;
    for (size_t i = 0; i < rows.size(); ++i) {
      const float* row = out.logits_of(static_cast<int>(i));
      logits.emplace_back(row, row + out.vocabulary);
    }
    cache.commit(std::move(*tail), kept);
    cache.poison_uncommitted();  // nothing of a rejected row may be read again
    return logits;
  }

  static std::vector<Row> chain(std::span<const int32_t> tokens) {
    std::vector<Row> rows;
    for (size_t i = 0; i < tokens.size(); ++i) rows.push_back({tokens[i], static_cast<int>(i) - 1});
    return rows;
  }
  static std::vector<int> all(size_t count) {
    std::vector<int> kept;
    for (size_t i = 0; i < count; ++i) kept.push_back(static_cast<int>(i));
    return kept;
  }

  // The oracle: logits behind each of `tokens`, fed one at a time.
  static std::vector<std::vector<float>> one_at_a_time(const Model& model, Backend& backend,
                                                       std::span<const int32_t> tokens) {
    KVCache cache(backend, model.kv_shapes(), KVCache::pages_for(static_cast<int>(tokens.size())));
    Workspace workspace(model, backend, {.rows = 1, .logit_rows = 1});
    const SeqId sequence = cache.open();
    cache.poison_uncommitted();
    std::vector<std::vector<float>> logits;
    for (int32_t token : tokens) {
      logits.push_back(run(model, cache, workspace, sequence, {{token, -1}}, {0})[0]);
    }
    return logits;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(ModelTest, TreesChunksAndThreadsGiveTheSameBits) {
  const TinyModel tiny(shape());
  std::mt19937 random(11);
  const auto pick = [&] { return static_cast<int32_t>(random() % 61); };
  std::vector<int32_t> text;
  for (int i = 0; i < 45; ++i) text.push_back(pick());

  std::map<std::vector<int32_t>, std::vector<float>> oracle;
  for (int threads : {1, 3}) {
    const auto engine = backend(threads);
    const Model model(tiny.source(), *engine);
    const auto expected = [&](const std::vector<int32_t>& tokens) -> const std::vector<float>& {
      if (!oracle.contains(tokens)) {
        const auto logits = one_at_a_time(model, *engine, tokens);
        for (size_t n = 1; n <= tokens.size(); ++n) {
          oracle[{tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)}] = logits[n - 1];
        }
      }
      return oracle[tokens];
    };
    Workspace workspace(model, *engine, {.rows = 80, .logit_rows = 80});
    expected(text);
    for (int chunk : {7, 45}) {
      KVCache cache(*engine, model.kv_shapes(), 8);
      const SeqId sequence = cache.open();
      for (size_t at = 0; at < text.size(); at += static_cast<size_t>(chunk)) {
        const auto part = std::span(text).subspan(at, std::min<size_t>(chunk, text.size() - at));
        const auto logits = run(model, cache, workspace, sequence, chain(part), all(part.size()));
        const std::vector<int32_t> known(text.begin(),
                                         text.begin() + static_cast<ptrdiff_t>(at + part.size()));
        ASSERT_TRUE(same_bits(logits.back(), expected(known))) << "chunk " << chunk << " at " << at;
      }
      // Behind it a random tree of 65 rows, several roots, ancestors scattered over pages; a random
      // path is kept, and the next tree hangs under it.
      std::vector<int32_t> known = text;
      for (int step = 0; step < 2; ++step) {
        std::vector<Row> rows;
        for (int i = 0; i < 65; ++i) {
          rows.push_back({pick(), static_cast<int>(random() % (i + 1u)) - 1});
        }
        const auto path_to = [&](int row) {
          std::vector<int> path;
          for (int at = row; at >= 0; at = rows[static_cast<size_t>(at)].parent) path.push_back(at);
          std::reverse(path.begin(), path.end());
          return path;
        };
        const std::vector<int> kept = path_to(static_cast<int>(random() % 65u));
        const auto logits = run(model, cache, workspace, sequence, rows, kept);
        for (int row : {2, 31, 64, kept.back()}) {
          std::vector<int32_t> tokens = known;
          for (int at : path_to(row)) tokens.push_back(rows[static_cast<size_t>(at)].token);
          ASSERT_TRUE(same_bits(logits[static_cast<size_t>(row)], expected(tokens)))
              << threads << " threads, chunk " << chunk << ", tree row " << row;
        }
        for (int at : kept) known.push_back(rows[static_cast<size_t>(at)].token);
      }
    }
  }
}

TEST_P(ModelTest, SequencesBesideEachOtherDoNotTouch) {
  const TinyModel tiny(shape());
  const auto engine = backend(2);
  const Model model(tiny.source(), *engine);
  KVCache cache(*engine, model.kv_shapes(), 16);
  Workspace workspace(model, *engine, {.rows = 64, .logit_rows = 64});
  const std::vector<int32_t> first = {5, 9, 2, 40, 7}, second = {1, 2, 3};
  const SeqId a = cache.open(), b = cache.open();
  run(model, cache, workspace, b, chain(second), all(second.size()));

  // In one batch: a prefill of `first`, and behind `second` a fork of two tokens.
  auto tail_a = cache.reserve(a, 5);
  auto tail_b = cache.reserve(b, 2);
  const std::vector<int32_t> token = {5, 9, 2, 40, 7, 30, 31}, parent = {-1, 0, 1, 2, 3, -1, -1};
  const SequenceRows places[] = {{0, 5, 0, cache.pages(a)}, {5, 2, 3, cache.pages(b)}};
  const std::vector<int32_t> wanted = {4, 5, 6};
  const ForwardOutput out =
      model.forward({.token = token, .parent = parent, .sequences = places, .logit_rows = wanted},
                    cache, workspace);
  const auto row = [&](int i) {
    return std::vector<float>(out.logits_of(i), out.logits_of(i) + out.vocabulary);
  };
  EXPECT_TRUE(same_bits(row(0), one_at_a_time(model, *engine, first).back()));
  EXPECT_TRUE(
      same_bits(row(1), one_at_a_time(model, *engine, std::vector<int32_t>{1, 2, 3, 30}).back()));
  EXPECT_TRUE(
      same_bits(row(2), one_at_a_time(model, *engine, std::vector<int32_t>{1, 2, 3, 31}).back()));
}

// A drafter forwards a tree as it grows: rows of an earlier forward stay in the tail, and the next
// level hangs under them. Two sequences grow beside each other, one level apart.
TEST_P(ModelTest, ATreeForwardedLevelByLevelGivesTheSameBits) {
  const TinyModel tiny(shape());
  const auto engine = backend(2);
  const Model model(tiny.source(), *engine);
  const std::vector<int32_t> known = {5, 9, 2, 40, 7, 11, 3};
  // Levels of 3 (two of them the end of a trunk), 2, 3 and 1 rows; no row order is a chain's.
  const std::vector<Row> tree = {{1, -1}, {2, 0}, {8, 0}, {6, 2}, {4, 1},
                                 {3, 4},  {9, 3}, {1, 3}, {5, 6}};
  const std::vector<size_t> level_ends = {3, 5, 8, 9};

  KVCache whole_cache(*engine, model.kv_shapes(), 4), cache(*engine, model.kv_shapes(), 8);
  Workspace workspace(model, *engine, {.rows = 16, .logit_rows = 16});
  const SeqId whole = whole_cache.open();
  run(model, whole_cache, workspace, whole, chain(known), all(known.size()));
  const auto expected = run(model, whole_cache, workspace, whole, tree, {});

  const SeqId grown[2] = {cache.open(), cache.open()};
  std::vector<KVCache::Tail> tails;
  for (SeqId sequence : grown) {
    run(model, cache, workspace, sequence, chain(known), all(known.size()));
  }
  for (SeqId sequence : grown) tails.push_back(*cache.reserve(sequence, 9));
  std::vector<int32_t> parents;
  for (const Row& row : tree) parents.push_back(row.parent);
  for (size_t round = 0; round <= level_ends.size(); ++round) {
    std::vector<int32_t> token, parent, wanted;
    std::vector<SequenceRows> places;
    std::vector<size_t> row_of;
    for (size_t s = 0; s < 2; ++s) {
      const size_t level = round - s;  // the second sequence begins one round later
      if (level >= level_ends.size()) continue;
      const size_t begin = level == 0 ? 0 : level_ends[level - 1];
      SequenceRows place{static_cast<int>(token.size()), 0, static_cast<int>(known.size()),
                         cache.pages(grown[s]), std::span(parents).first(begin)};
      for (size_t row = begin; row < level_ends[level]; ++row) {
        wanted.push_back(static_cast<int32_t>(token.size()));
        token.push_back(tree[row].token);
        parent.push_back(tree[row].parent);
        row_of.push_back(row);
      }
      place.count = static_cast<int>(token.size()) - place.first;
      places.push_back(place);
    }
    const ForwardOutput out =
        model.forward({.token = token, .parent = parent, .sequences = places, .logit_rows = wanted},
                      cache, workspace);
    for (size_t i = 0; i < row_of.size(); ++i) {
      const float* logits = out.logits_of(static_cast<int>(i));
      EXPECT_TRUE(same_bits({logits, logits + out.vocabulary}, expected[row_of[i]]))
          << "round " << round << ", tree row " << row_of[i];
    }
  }
  // The cache commits such a path like any other.
  const std::vector<int> path = {0, 2, 3, 6};
  cache.commit(std::move(tails[0]), path);
  std::vector<int32_t> text = known;
  for (int row : path) text.push_back(tree[static_cast<size_t>(row)].token);
  text.push_back(33);
  EXPECT_TRUE(same_bits(run(model, cache, workspace, grown[0], {{33, -1}}, {0})[0],
                        one_at_a_time(model, *engine, text).back()));
}

TEST_P(ModelTest, TapsTopKAndLayerSubsets) {
  const TinyModel tiny(shape());
  const auto engine = backend(2);
  const Model model(tiny.source(), *engine);
  KVCache cache(*engine, model.kv_shapes(), 4);
  Workspace workspace(model, *engine, {.rows = 8, .logit_rows = 8, .taps = 3, .top_k = 5});
  const SeqId sequence = cache.open();
  auto tail = cache.reserve(sequence, 3);
  const std::vector<int32_t> token = {3, 4, 5}, parent = {-1, 0, 1}, wanted = {2};
  const SequenceRows place{0, 3, 0, cache.pages(sequence)};
  const std::vector<int> taps = {0, 2, 3}, two_layers = {0, 1};
  ForwardBatch batch{.token = token,
                     .parent = parent,
                     .sequences = {&place, 1},
                     .logit_rows = wanted,
                     .tap_layers = taps,
                     .top_k = 5};
  ForwardOutput out = model.forward(batch, cache, workspace);
  const std::vector<float> hidden_after_two(out.tap(1, 2), out.tap(1, 2) + out.dim);
  EXPECT_FALSE(same_bits(hidden_after_two, {out.tap(2, 2), out.tap(2, 2) + out.dim}));
  std::vector<int32_t> order(static_cast<size_t>(out.vocabulary));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return out.logits[static_cast<size_t>(x)] > out.logits[static_cast<size_t>(y)];
  });
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(out.top_ids[i], order[i]);
    EXPECT_EQ(out.top_logits[i], out.logits[static_cast<size_t>(order[i])]);
  }

  // Two of three layers: the hidden state at the end is the one tapped in the middle before.
  batch.layers = two_layers;
  const std::vector<int> last = {2};
  batch.tap_layers = last;
  out = model.forward(batch, cache, workspace);
  EXPECT_TRUE(same_bits({out.tap(0, 2), out.tap(0, 2) + out.dim}, hidden_after_two));
}

INSTANTIATE_TEST_SUITE_P(Backends, ModelTest,
                         testing::Combine(testing::ValuesIn(settings()), testing::Range(0, 4)),
                         [](const auto& instance) {
                           const Setting& setting = std::get<0>(instance.param);
                           std::string name = setting.backend + "_" + setting.target + "_" +
                                              std::to_string(std::get<1>(instance.param));
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace coppice
