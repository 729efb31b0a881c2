// A cascade of drafters is exact: joint distributions of mixed trees, enumerated, whatever its
// parts propose; and each part sees what became of its own nodes.
#include "drafters/cascade.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "decoding/draft_sampling.h"
#include "kernels/base/error.h"
#include "tests/scripted_drafter.h"
#include "tests/toy_cases.h"

namespace coppice {
namespace {

using test::draft_row;
using test::kDraft;
using test::largest;
using test::toy_with;
using ::testing::ElementsAre;

/// What a part may do with a job, in a case whose chance is enumerated.
using Part = std::function<void(DraftJob&, Coins&)>;

/// The case's coins reach the parts behind the cascade's back.
struct Enumerated {
  std::vector<Part> parts;
  Cascade::Mode mode;
  int budget;

  void operator()(const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) const {
    std::vector<std::unique_ptr<Drafter>> drafters;
    for (const Part& part : parts) {
      drafters.push_back(
          std::make_unique<Scripted>(8, [&part, &coins](DraftJob& job) { part(job, coins); }));
    }
    Cascade cascade(std::move(drafters), mode);
    tree.reset(context.back(), budget);
    DraftJob job;
    job.tokens = context;
    job.budget = budget;
    job.draw = Draw::independent;
    job.sampler = &sampler;
    job.tree = &tree;
    cascade.propose({&job, 1});
  }
};

std::vector<float> q_behind(const DraftJob& job, int node) {
  Tokens path;
  job.tree->path_tokens(node, path);
  return draft_row(kDraft, *job.sampler, {job.tokens.begin(), job.tokens.end()}, path);
}

void point_chain(DraftJob& job, Coins&) {
  int node = 0;
  for (int i = 0; i < 2 && node >= 0; ++i) {
    node = job.tree->add({.parent = node, .token = largest(q_behind(job, node))});
  }
}
void two_points(DraftJob& job, Coins&) {
  for (int32_t token : {2, 0}) job.tree->add({.parent = 0, .token = token});
}
void drawn_chain(DraftJob& job, Coins& coins) {
  int node = 0;
  for (int i = 0; i < 2 && job.tree->room() > 0; ++i) {
    const std::vector<float> q = q_behind(job, node);
    node = job.tree->add(
        {.parent = node, .token = test::draw(coins, q), .q_row = job.tree->q.add_dense(q)});
  }
}
/// Repeats may occur.
void drawn_siblings(DraftJob& job, Coins& coins) {
  const std::vector<float> q = q_behind(job, 0);
  const int row = job.tree->q.add_dense(q);
  for (int i = 0; i < 2 && job.tree->room() > 0; ++i) {
    job.tree->add({.parent = 0, .token = test::draw(coins, q), .q_row = row});
  }
}
void without_replacement(DraftJob& job, Coins& coins) {
  std::vector<float> q = q_behind(job, 0);
  std::reverse(q.begin(), q.end());
  const int row = job.tree->q.add_dense(q, true);
  for (int i = 0; i < 2 && job.tree->room() > 0; ++i) {
    if (*std::max_element(q.begin(), q.end()) == 0.0f) return;  // used up
    const int32_t token = test::draw(coins, q);
    q[static_cast<size_t>(token)] = 0.0f;
    job.tree->add({.parent = 0, .token = token, .q_row = row});
  }
}
/// Its size, and so the room of the parts behind it, depends on what it drew.
void grows_with_luck(DraftJob& job, Coins& coins) {
  const std::vector<float> q = q_behind(job, 0);
  const int32_t token = test::draw(coins, q);
  const int node = job.tree->add({.parent = 0, .token = token, .q_row = job.tree->q.add_dense(q)});
  if (token != 0 && job.tree->room() > 0) job.tree->add({.parent = node, .token = 1});
}
void probes(DraftJob& job, Coins&) {
  const int probe = job.tree->add({.parent = 0, .token = 1, .role = NodeRole::probe});
  if (probe > 0) job.tree->add({.parent = probe, .token = 0, .role = NodeRole::probe});
}
void nothing(DraftJob&, Coins&) {}

TEST(Cascade, EveryMixtureIsExactUnderEveryRule) {
  const std::vector<std::vector<Part>> mixtures = {
      {point_chain, drawn_chain},
      {drawn_chain, point_chain},
      {two_points, drawn_siblings},
      {drawn_siblings, two_points},
      {drawn_siblings, drawn_chain},
      {without_replacement, two_points, drawn_chain},
      {probes, point_chain, probes, drawn_siblings},
      {grows_with_luck, drawn_siblings},
      {grows_with_luck, without_replacement, two_points},
      {nothing, drawn_chain},
  };
  for (const std::string_view name : {"greedy", "coupled", "rejection"}) {
    const auto rule = make_rule(name);
    for (size_t i = 0; i < mixtures.size(); ++i) {
      for (const Cascade::Mode mode : {Cascade::Mode::first, Cascade::Mode::merge}) {
        for (const int budget : {2, 3, 8}) {
          const ToyCase toy = toy_with(Enumerated{mixtures[i], mode, budget});
          EXPECT_LE(enumerate_case(*rule, toy).deviation, Certificate::kTolerance)
              << name << ", mixture " << i << ", budget " << budget;
        }
      }
    }
  }
}

std::unique_ptr<test::ScriptedDrafter> scripted(int most_nodes, Scripted::Script script) {
  return std::make_unique<test::ScriptedDrafter>(most_nodes, std::move(script));
}

struct Grown {
  TokenTree tree;
  explicit Grown(Drafter& cascade, Sampler* sampler = nullptr, int budget = 16) {
    static const Tokens text = {5, 6};
    tree.reset(text.back(), budget);
    DraftJob job;
    job.tokens = text;
    job.budget = budget;
    job.sampler = sampler;
    job.draw = Draw::independent;
    job.tree = &tree;
    cascade.propose({&job, 1});
  }
};

TEST(Cascade, AsksOneAfterTheOtherOrJoinsAll) {
  for (const Cascade::Mode mode : {Cascade::Mode::first, Cascade::Mode::merge}) {
    std::vector<std::unique_ptr<Drafter>> parts;
    parts.push_back(scripted(4, [](DraftJob&) {}));
    parts.push_back(scripted(4, [](DraftJob& job) {
      const int a = job.tree->add({.parent = 0, .token = 1});
      job.tree->add({.parent = a, .token = 2});
    }));
    parts.push_back(scripted(8, [](DraftJob& job) {
      const int a = job.tree->add({.parent = 0, .token = 1});
      job.tree->add({.parent = a, .token = 3});
      job.tree->add({.parent = 0, .token = 4});
    }));
    Cascade cascade(std::move(parts), mode);
    const Grown grown(cascade);
    const TokenTree& tree = grown.tree;
    if (mode == Cascade::Mode::first) {
      EXPECT_EQ(cascade.needs().most_nodes, 8);
      ASSERT_EQ(tree.size(), 3);
      EXPECT_EQ(tree.source(2), 1);
      continue;
    }
    EXPECT_EQ(cascade.needs().most_nodes, 16);
    ASSERT_EQ(tree.size(), 5);  // 1 is shared
    EXPECT_EQ(tree.token(3), 3);
    EXPECT_EQ(tree.parent(3), 1);
    EXPECT_EQ(tree.source(1), 1);
    EXPECT_EQ(tree.source(3), 2);
    EXPECT_EQ(tree.parent(4), 0);
  }
}

TEST(Cascade, TellsEachPartWhatItsNodesBecame) {
  std::vector<std::vector<int>> own(2);
  std::vector<int> taps;
  std::vector<std::unique_ptr<Drafter>> parts;
  const auto listen = [&](size_t part, Scripted::Script script) {
    auto drafter = scripted(4, std::move(script));
    drafter->on_observe = [&own, &taps, part](const Observation& seen) {
      own[part].clear();
      for (int node = 0; node < seen.own_size(); ++node) own[part].push_back(seen.node_of(node));
      taps.push_back(seen.first_tap);
    };
    parts.push_back(std::move(drafter));
  };
  listen(0, [](DraftJob& job) { job.tree->add({.parent = 0, .token = 1}); });
  listen(1, [](DraftJob& job) {
    job.tree->add({.parent = 0, .token = 2});
    const int shared = job.tree->add({.parent = 0, .token = 1});
    job.tree->add({.parent = shared, .token = 3});
  });
  Cascade cascade(std::move(parts), Cascade::Mode::merge);
  Grown grown(cascade);
  const Tokens text = {5, 6, 1};
  const auto observe = [&] {
    Observation seen;
    seen.tokens = text;
    seen.tree = &grown.tree;
    if (!grown.tree.renumbered().empty()) seen.own_nodes = grown.tree.renumbered();
    cascade.observe({&seen, 1});
  };
  observe();
  EXPECT_THAT(own[0], ElementsAre(0, 1));
  EXPECT_THAT(own[1], ElementsAre(0, 2, 1, 3));
  observe();  // a step in which nothing was asked
  EXPECT_THAT(own[1], ElementsAre(0));
  grown = Grown(cascade);
  grown.tree.cut(std::vector<uint8_t>{1, 0, 1, 0});
  observe();
  EXPECT_THAT(own[0], ElementsAre(0, -1));
  EXPECT_THAT(own[1], ElementsAre(0, 1, -1, -1));
}

// Two parts that draw from one distribution draw independently, though both number their nodes
// from 1.
TEST(Cascade, PartsDoNotShareNoise) {
  const std::vector<float> logits = {0.0f, 0.0f, 0.0f, 0.0f};
  const Scripted::Script draws = [&](DraftJob& job) { add_drawn(job, 0, logits); };
  std::vector<std::unique_ptr<Drafter>> parts;
  parts.push_back(scripted(1, draws));
  parts.push_back(scripted(1, draws));
  Cascade cascade(std::move(parts), Cascade::Mode::merge);
  constexpr int kSteps = 2000;
  int same = 0;
  for (uint64_t seed = 0; seed < kSteps; ++seed) {
    Sampler sampler({.temperature = 1.0f, .seed = seed}, 4, {});
    const Grown grown(cascade, &sampler);
    ASSERT_EQ(grown.tree.size(), 3);
    same += grown.tree.token(1) == grown.tree.token(2);
    EXPECT_EQ(sampler.draw_draft(std::vector<float>(4, 1.0f), 1, 1, 1), grown.tree.token(1));
  }
  EXPECT_NEAR(same / static_cast<double>(kSteps), 0.25, 4.5 * std::sqrt(0.25 * 0.75 / kSteps));
}

class Needy : public Scripted {
 public:
  explicit Needy(Needs needs) : Scripted(0, [](DraftJob&) {}), needs_(std::move(needs)) {}
  Needs needs() const override { return needs_; }

 private:
  Needs needs_;
};

TEST(Cascade, NeedsAreTheUnion) {
  std::vector<std::unique_ptr<Drafter>> parts;
  parts.push_back(std::make_unique<Needy>(
      Needs{.tap_layers = {1, 5}, .top_k = 2, .kv_layers = {{2, 8}}, .most_nodes = 3}));
  parts.push_back(std::make_unique<Needy>(Needs{
      .tap_layers = {5}, .top_k = 8, .kv_layers = {{1, 4}}, .most_nodes = 4, .vocabulary = 61}));
  const Needs needs = Cascade(std::move(parts), Cascade::Mode::merge).needs();
  EXPECT_THAT(needs.tap_layers, ElementsAre(1, 5, 5));
  EXPECT_EQ(needs.top_k, 8);
  EXPECT_EQ(needs.kv_layers.size(), 2u);
  EXPECT_EQ(needs.vocabulary, 61);
  std::vector<std::unique_ptr<Drafter>> strangers;
  strangers.push_back(std::make_unique<Needy>(Needs{.vocabulary = 61}));
  strangers.push_back(std::make_unique<Needy>(Needs{.vocabulary = 60}));
  EXPECT_THROW(Cascade(std::move(strangers), Cascade::Mode::first), Error);
}

}  // namespace
}  // namespace coppice
