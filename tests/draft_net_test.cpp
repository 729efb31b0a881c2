// The small draft model as it is trained: against the model that drafts with the same weights, its
// gradients against finite differences, and its guesses counted by hand.
#include "experiments/training/draft_net.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/kv_cache.h"
#include "decoding/distilled_model.h"
#include "decoding/packed_batch.h"
#include "experiments/training/trainer.h"
#include "tests/tiny_draft.h"
#include "tests/tiny_model.h"
#include "tests/train_net_checks.h"

namespace coppice {
namespace {

using test::as_double;
using test::random_example;
using test::TinyDraft;
using test::TinyModel;
using test::TinyShape;

const std::vector<int32_t> kIds = {1, 2, 3, 5, 8, 13, 17, 21, 22, 30, 31, 34, 40, 41, 55, 60};
const TinyShape kShapes[] = {{}, {.biases = true}, {.gemma_like = true}};

DraftNet net_of(const TinyDraft& draft, const TinyModel& tiny) {
  return {draft.config, tiny.source(), as_double(read_target(tiny.source(), kIds)), at::kDouble};
}

// The cache of the one rounds keys and values to 16 bits.
TEST(DraftNet, SaysWhatTheModelOfItsFileSays) {
  at::set_num_threads(1);
  const auto backend = make_backend({.name = "reference", .threads = 1});
  const auto path = std::filesystem::path(testing::TempDir()) / "draft_net_test.safetensors";
  for (const TinyShape& shape : kShapes) {
    const TinyModel tiny(shape);
    const Model target(tiny.source(), *backend);
    const TinyDraft draft(tiny.source(), describe_target(target), {0, 2}, kIds);
    draft.write(path);
    const auto model = load_distilled(path, target, *backend);
    const Example example = random_example(draft.config, 40, 7);  // a window ends within it
    std::vector<int32_t> text;
    for (int i = 0; i < 39; ++i) {
      text.push_back(static_cast<int32_t>(example.tokens[i].item<int64_t>()));
    }
    KVCache cache(*backend, model->kv_shapes(), KVCache::pages_for(39));
    Workspace workspace(*model, *backend, {.rows = 39, .logit_rows = 35});
    const SeqId sequence = cache.open();
    const auto tail = cache.reserve(sequence, 39);
    std::vector<int32_t> parent(39);
    for (int row = 0; row < 39; ++row) parent[static_cast<size_t>(row)] = row - 1;
    PackedBatch packed;
    packed.clear();
    packed.add_rows(text, parent, {}, 0, cache.pages(sequence), 4);
    const ForwardOutput output = model->forward(packed.batch(), cache, workspace);

    DraftNet net = net_of(draft, tiny);
    const at::Tensor logits = net.forward(example).detach();
    ASSERT_EQ(logits.size(0), 35);
    for (int row = 0; row < 35; ++row) {
      for (int id = 0; id < static_cast<int>(kIds.size()); ++id) {
        ASSERT_NEAR(output.logits_of(row)[id], logits[row][id].item<double>(), 1e-2)
            << tiny.source().config.architecture << ", row " << row;
      }
    }
  }
  std::filesystem::remove(path);
}

TEST(DraftNet, GradientsAreThoseOfFiniteDifferences) {
  at::set_num_threads(1);
  std::mt19937 random(3);
  for (const TinyShape& shape : kShapes) {
    const TinyModel tiny(shape);
    const TinyDraft draft(tiny.source(), {"tiny", "tiny", 64, 3, 61, 1}, {0, 2}, kIds);
    for (const bool distill : {true, false}) {
      DraftNet net = net_of(draft, tiny);
      LoopOptions options;
      options.distill = distill;
      test::expect_gradients_of_differences(net, random_example(draft.config, 30, 11), options,
                                            random);
    }
  }
}

TEST(DraftNet, CountsGuessesThatFollowRightOnes) {
  at::set_num_threads(1);
  const TinyModel tiny({});
  const TinyDraft draft(tiny.source(), {"tiny", "tiny", 64, 3, 61, 1}, {0, 2}, kIds);
  DraftNet net = net_of(draft, tiny);
  Example example = random_example(draft.config, 12, 5);
  // The second, third and fifth token of the answer's seven are what the net guesses.
  for (const int64_t token : {6, 7, 9}) {
    const int64_t row = net.forward(example)[token - 5].argmax().item<int64_t>();
    example.tokens[token] = kIds[static_cast<size_t>(row)];
  }
  const at::Tensor guessed = net.forward(example).argmax(-1);
  std::vector<bool> right;
  for (int64_t row = 0; row < 7; ++row) {
    right.push_back(kIds[static_cast<size_t>(guessed[row].item<int64_t>())] ==
                    example.tokens[row + 5].item<int64_t>());
  }
  ASSERT_EQ(right, (std::vector<bool>{false, true, true, false, true, false, false}));
  Hits hits;
  net.count_hits(example, 3, hits);
  EXPECT_EQ(hits.reached, (std::vector<int64_t>{7, 3, 1}));
  EXPECT_EQ(hits.right, (std::vector<int64_t>{3, 1, 0}));
  EXPECT_DOUBLE_EQ(hits.tokens_per_step(), 1.0 + 3.0 / 7.0 + 1.0 / 7.0);
}

}  // namespace
}  // namespace coppice
