// One drafter that uses every contract at once: hidden-state taps, the target's top tokens, a layer
// of its own in the target's cache, dense and sparse q rows, repeated and mixed siblings, probes, a
// draft by a subset of the target's layers; on ragged batches, chunked prefills, preemption in
// mid-request and a budget of 0, with NaN in every slot that holds nothing committed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "decoding/draft_sampling.h"
#include "decoding/engine.h"
#include "decoding/packed_batch.h"
#include "kernels/base/error.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;
using test::TinyShape;

constexpr int kVocabulary = 61;
constexpr int kNodes = 12;

// Its own layer is a one-layer model whose K and V live behind the target's.
class EverythingDrafter : public Drafter {
 public:
  EverythingDrafter(const Model& target, const Model& head, Backend& backend)
      : target_(target),
        head_(head),
        backend_(backend),
        workspace_(head, backend, {.rows = 128, .logit_rows = 2}),
        target_workspace_(target, backend, {.rows = 4, .logit_rows = 1}),
        probe_cache_(backend, target.kv_shapes(), 16) {}

  Needs needs() const override {
    return {.tap_layers = {1, target_.layers()},
            .top_k = 3,
            .kv_layers = head_.kv_shapes(),
            .most_nodes = kNodes,
            .vocabulary = kVocabulary};
  }

  void observe(std::span<const Observation> observations) override {
    for (const Observation& seen : observations) {
      State& state = states_[seen.sequence];
      // Positions from first_position on were computed anew: what was known of them goes.
      state.taps.resize(static_cast<size_t>(seen.first_position));
      for (int row : seen.kept_rows) {
        const float* last = seen.tap(1, row);
        state.taps.emplace_back(last, last + seen.output->dim);
      }
      state.head_fed = std::min(state.head_fed, static_cast<int>(seen.tokens.size()) - 1);
      EXPECT_EQ(seen.first_position + seen.kept_rows.size(),
                seen.tree != nullptr ? seen.tokens.size() - 1 : state.taps.size());
      if (seen.tree == nullptr) continue;
      for (int node = 0; node < seen.tree->size(); ++node) {
        const auto top = seen.top_ids(seen.node_row[static_cast<size_t>(node)]);
        ASSERT_EQ(top.size(), 3u);
      }
      const int root_row = seen.node_row[0];
      state.likely.assign(seen.top_ids(root_row).begin(), seen.top_ids(root_row).end());
      ++observed;
    }
  }

  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      State& state = states_[job.sequence];
      check_taps(job, state);
      const std::vector<float> q = run_head(job, state);
      grow(job, state, q);
    }
  }

  void forget(SeqId sequence, Reason reason) override {
    states_.erase(sequence);
    ++(reason == Reason::preempted ? preempted : finished);
  }

  int observed = 0, preempted = 0, finished = 0, taps_checked = 0, heads_checked = 0;
  int repeats = 0, sparse = 0, probes = 0, subset_drafts = 0;

 private:
  struct State {
    std::vector<std::vector<float>> taps;  // last hidden state of every committed position
    std::vector<int32_t> likely;
    int head_fed = 0;  // positions the own layer holds
  };

  // The tap of the last committed position is what a fresh forward of the same text gives.
  void check_taps(const DraftJob& job, const State& state) {
    const size_t committed = job.tokens.size() - 1;
    ASSERT_EQ(state.taps.size(), committed);
    if (committed == 0 || committed > 100) return;
    Workspace workspace(target_, backend_, {.rows = 128, .logit_rows = 1, .taps = 1});
    const SeqId fresh = probe_cache_.open();
    PackedBatch packed;
    packed.clear();
    {
      auto tail = probe_cache_.reserve(fresh, static_cast<int>(committed));
      packed.add(job.tokens.first(committed), nullptr, 0, probe_cache_.pages(fresh), false);
      ForwardBatch batch = packed.batch();
      const std::vector<int> taps = {target_.layers()};
      batch.tap_layers = taps;
      const ForwardOutput output = target_.forward(batch, probe_cache_, workspace);
      const float* expected = output.tap(0, static_cast<int>(committed) - 1);
      EXPECT_EQ(
          std::memcmp(expected, state.taps.back().data(), state.taps.back().size() * sizeof(float)),
          0);
    }
    probe_cache_.close(fresh);
    ++taps_checked;
  }

  // Catches the own layer up to node 0 and returns its logits there. They equal those of a cache
  // filled afresh: commits and rollbacks of the target carried the layer along.
  std::vector<float> run_head(const DraftJob& job, State& state) {
    const auto feed = [&](KVCache& cache, SeqId sequence, int from, int kv_first) {
      PackedBatch packed;
      packed.clear();
      packed.add(job.tokens.subspan(static_cast<size_t>(from)), nullptr, from,
                 cache.pages(sequence), true);
      const ForwardOutput output = head_.forward(packed.batch(), cache, workspace_, kv_first);
      return std::vector<float>(output.logits.begin(), output.logits.end());
    };
    const int from = std::max(state.head_fed, static_cast<int>(job.tokens.size()) - 120);
    if (from > state.head_fed) return std::vector<float>(kVocabulary, 0.0f);
    const std::vector<float> logits = feed(*job.cache, job.sequence, from, job.first_layer);
    state.head_fed = static_cast<int>(job.tokens.size());
    if (job.tokens.size() < 100) {
      KVCache own(backend_, head_.kv_shapes(), 8);
      const SeqId sequence = own.open();
      {
        auto tail = own.reserve(sequence, static_cast<int>(job.tokens.size()));
        EXPECT_EQ(feed(own, sequence, 0, 0), logits);
      }
      ++heads_checked;
    }
    return logits;
  }

  void grow(DraftJob& job, State& state, const std::vector<float>& q) {
    TokenTree& tree = *job.tree;
    const int first = add_drawn(job, 0, q);
    if (job.draw == Draw::independent) {  // drawn siblings may repeat; none is dropped for it
      const int second = add_drawn(job, 0, q);
      if (second > 0 && tree.token(second) == tree.token(first)) ++repeats;
      const std::vector<int32_t> ids = {3, 17, 40};
      const std::vector<float> p = {0.5f, 0.25f, 0.25f};
      if (tree.room() > 0 && tree.most_depth() > 0) {
        const int row = tree.q.add_sparse(ids, p);
        const int drawn =
            job.sampler->draw_draft(p, static_cast<int>(job.tokens.size()) - 1, 1, tree.size());
        tree.add({.parent = 0, .token = ids[static_cast<size_t>(drawn)], .q_row = row});
        ++sparse;
      }
    }
    for (int32_t token : state.likely) {  // point masses beside them
      bool there = false;
      for (int c = tree.first_child(0); c >= 0; c = tree.next_sibling(c)) {
        there = there || (tree.token(c) == token && tree.q_row(c) == kPointMass);
      }
      if (!there) tree.add({.parent = 0, .token = token});
    }
    if (first > 0) {
      const int32_t token = draft_with_two_layers(job);
      tree.add({.parent = first, .token = token});
    }
    int probe = tree.add({.parent = 0, .token = 1, .role = NodeRole::probe});
    if (probe > 0) {
      tree.add({.parent = probe, .token = 2, .role = NodeRole::probe});
      ++probes;
    }
  }

  // Layers 0 and 2 of the target at node 0's own slot: the verification must rewrite what they
  // leave there.
  int32_t draft_with_two_layers(const DraftJob& job) {
    PackedBatch packed;
    packed.clear();
    const int committed = static_cast<int>(job.tokens.size()) - 1;
    packed.add(job.tokens.last(1), nullptr, committed, job.cache->pages(job.sequence), true);
    ForwardBatch batch = packed.batch();
    const std::vector<int> layers = {0, 2};
    batch.layers = layers;
    const ForwardOutput output = target_.forward(batch, *job.cache, target_workspace_);
    ++subset_drafts;
    return static_cast<int32_t>(std::max_element(output.logits.begin(), output.logits.end()) -
                                output.logits.begin());
  }

  const Model& target_;
  const Model& head_;
  Backend& backend_;
  Workspace workspace_, target_workspace_;
  KVCache probe_cache_;
  std::map<SeqId, State> states_;
};

class Contract : public testing::TestWithParam<std::string_view> {};

TEST_P(Contract, OneDrafterUsesAllOfIt) {
  const auto backend = make_backend({.name = std::string(GetParam()), .threads = 2});
  const TinyModel tiny({.vocabulary = kVocabulary, .type = DType::q8_0, .sharpness = 3.0f});
  const TinyModel tiny_head({.vocabulary = kVocabulary, .layers = 1, .seed = 9});
  const Model target(tiny.source(), *backend), head(tiny_head.source(), *backend);
  const Tokenizer tokenizer = tiny.tokenizer();

  const auto request = [](int which, float temperature) {
    Request asked;
    for (int i = 0; i < 9 + 30 * which; ++i) asked.prompt.push_back(1 + (i * 7 + which) % 60);
    asked.stop.max_new_tokens = 40 - which;
    asked.sampling.temperature = temperature;
    asked.sampling.seed = 5;
    asked.sampling.request = static_cast<uint32_t>(which);
    return asked;
  };
  const auto decode = [&](std::string_view rule_name, float temperature, Drafter* drafter,
                          int budget, bool preempt) {
    const auto rule = make_rule(rule_name);
    Engine engine({&target, backend.get(), &tokenizer, rule.get(), drafter},
                  {.sequences = 2, .context = 160, .chunk_rows = 24, .budget = budget});
    const RequestId a = engine.submit(request(0, temperature));
    const RequestId b = engine.submit(request(1, temperature));
    int prefill_steps = 0;
    engine.on_step = [&](const StepRecord& record) { prefill_steps += record.prefill ? 1 : 0; };
    for (int step = 1; engine.step(); ++step) {
      engine.cache().poison_uncommitted();
      if (preempt && step == 12) engine.preempt(b);
    }
    EXPECT_GE(prefill_steps, 3);  // 39 tokens in chunks of at most 24
    EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
    return std::pair(engine.take(a).ids, engine.take(b).ids);
  };

  const auto greedy = decode("greedy", 0.0f, nullptr, 0, false);
  const auto coupled = decode("coupled", 1.0f, nullptr, 0, false);
  int repeats = 0, sparse = 0;
  for (bool preempt : {false, true}) {
    for (int budget : {0, 1, 5, kNodes}) {
      EverythingDrafter first(target, head, *backend), second(target, head, *backend),
          third(target, head, *backend), fourth(target, head, *backend);
      EXPECT_EQ(decode("greedy", 0.0f, &first, budget, preempt), greedy) << budget;
      EXPECT_EQ(decode("coupled", 1.0f, &second, budget, preempt), coupled) << budget;
      // Under rejection equal trees give equal texts: a second run repeats the first.
      EXPECT_EQ(decode("rejection", 1.0f, &third, budget, preempt),
                decode("rejection", 1.0f, &fourth, budget, preempt));
      repeats += third.repeats;
      sparse += third.sparse;
      EXPECT_EQ(first.preempted, preempt ? 1 : 0);
      EXPECT_EQ(first.finished, 2);
      EXPECT_GT(first.observed, 0);
      if (budget == kNodes) {
        for (const EverythingDrafter* drafter : {&first, &second, &third}) {
          EXPECT_GT(drafter->taps_checked, 10);
          EXPECT_GT(drafter->heads_checked, 10);
          EXPECT_GT(drafter->probes, 10);
          EXPECT_GT(drafter->subset_drafts, 10);
        }
      }
    }
  }
  EXPECT_GT(repeats, 0);
  EXPECT_GT(sparse, 0);
}

TEST_P(Contract, ADrafterForAnotherVocabularyIsRefused) {
  const auto backend = make_backend({.name = std::string(GetParam()), .threads = 1});
  const TinyModel tiny({.vocabulary = 59}), tiny_head({.vocabulary = 59, .layers = 1});
  const Model target(tiny.source(), *backend), head(tiny_head.source(), *backend);
  EverythingDrafter drafter(target, head, *backend);
  const auto rule = make_rule("greedy");
  EXPECT_THROW(Engine({&target, backend.get(), nullptr, rule.get(), &drafter}, {.context = 64}),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, Contract, testing::Values("reference", "cpu"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace coppice
