// The op Judge against core's Sampler and decoding's rules, and the device's team against the
// host's, bit for bit: warps, noise, walks, repeated and drawn siblings, penalties, broken rows.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "decoding/backend_judge.h"
#include "kernels/cuda/block_team.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/shared/judge.h"

namespace coppice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Logits with ties, zeros of both signs and forbidden tokens.
std::vector<float> random_logits(std::mt19937& random, int count) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& logit : logits) {
    logit = random() % 3 == 0 ? std::nearbyint(normal(random)) : normal(random);
    if (random() % 11 == 0) logit = random() % 2 == 0 ? -0.0f : -kInfinity;
  }
  logits[random() % logits.size()] = 1.0f;
  return logits;
}

SamplingParams random_params(std::mt19937& random, int vocabulary) {
  const auto one_of = [&](std::initializer_list<float> values) {
    return values.begin()[random() % values.size()];
  };
  SamplingParams params;
  params.temperature = one_of({0.0f, 0.5f, 1.0f, 1.7f});
  params.top_k = static_cast<int>(one_of({0, 0, 1, 5, 40, 100000}));
  params.top_p = one_of({1.0f, 0.95f, 0.5f, 0.0f});
  params.min_p = one_of({0.0f, 0.0f, 0.1f, 1.0f});
  params.repetition_penalty = one_of({1.0f, 1.3f});
  params.presence_penalty = one_of({0.0f, 0.4f});
  params.frequency_penalty = one_of({0.0f, 0.2f});
  params.penalty_window = static_cast<int>(one_of({0, 3, 64}));
  if (random() % 2 == 0) params.logit_bias = {{3, 2.5f}, {vocabulary - 1, -kInfinity}};
  params.seed = random();
  params.request = random() % 5;
  return params;
}

/// A tree of some nodes that a drafter could have grown: chains, point masses, drawn siblings.
void grow(std::mt19937& random, Sampler& sampler, int vocabulary, bool drawn, TokenTree& tree,
          const std::vector<std::vector<float>>& logits) {
  while (tree.room() > 0) {
    const int parent = static_cast<int>(random() % static_cast<size_t>(tree.size()));
    if (tree.role(parent) == NodeRole::probe) continue;
    if (!drawn) {
      const auto token = static_cast<int32_t>(random() % static_cast<size_t>(vocabulary));
      const bool probe = random() % 6 == 0;
      if (tree.find_child(parent, token) >= 0) continue;
      tree.add({parent, token, probe ? NodeRole::probe : NodeRole::verify});
      continue;
    }
    if (tree.first_child(parent) >= 0) {
      if (random() % 4 == 0) return;
      continue;
    }
    const int32_t root[] = {tree.token(0)};
    std::vector<float> q;
    const auto p = sampler.probabilities(logits[random() % logits.size()], {root, {}});
    q.assign(p.begin(), p.end());
    const bool replace = random() % 2 == 0;
    int row = -1;
    if (random() % 2 == 0) {
      row = tree.q.add_dense(q, !replace);
    } else {
      std::vector<int32_t> ids;
      std::vector<float> kept;
      for (int32_t i = 0; i < vocabulary; ++i) {
        if (q[i] > 0.0f) ids.push_back(i), kept.push_back(q[i]);
      }
      row = tree.q.add_sparse(ids, kept, !replace);
    }
    for (int sibling = 0; sibling < 3 && tree.room() > 0; ++sibling) {
      const int32_t token = sampler.draw_draft(q, 9, tree.depth(parent) + 1, tree.size());
      if (token < 0) break;
      tree.add({.parent = parent, .token = token, .q_row = row});
      if (!replace) q[token] = 0.0f;
    }
  }
}

class JudgeTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> cpu_ = make_backend({.name = "cpu", .threads = 1});
  std::unique_ptr<Backend> device_ = emulated_cuda_entry().make({.target = "exact"});
};

TEST_F(JudgeTest, VerdictsAreThoseOfTheRulesOnTheHost) {
  std::mt19937 random(3);
  int accepted = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const int vocabulary = trial % 5 == 0 ? 700 : 61, stride = vocabulary + 3, nodes = 9;
    const SamplingParams params = random_params(random, vocabulary);
    const std::vector<int32_t> masked = {7, 2};
    Sampler sampler(params, vocabulary, trial % 3 == 0 ? masked : std::vector<int32_t>());
    std::vector<std::vector<float>> logits;
    for (int n = 0; n <= nodes; ++n) {
      logits.push_back(random_logits(random, stride));
      // Alike enough that drafts are accepted.
      if (n > 0) {
        for (int i = 0; i < stride; ++i) logits[n][i] += 2.0f * logits[0][i];
      }
    }
    const std::string name = trial % 3 == 0 ? "greedy" : trial % 3 == 1 ? "coupled" : "rejection";
    const auto rule = make_rule(name);
    const std::vector<int32_t> history = {5, 3, 5, 9, 3, 3, 11};
    TokenTree tree;
    tree.reset(history.back(), nodes);
    const bool drawn = name == "rejection" && params.temperature > 0.0f && trial % 2 == 0;
    if (trial % 4 != 3) {
      grow(random, sampler, vocabulary, drawn, tree, logits);
    } else {  // a chain of likely tokens
      for (int n = 0; n < 4; ++n) {
        const int32_t token = sampler.argmax(logits[n], {history, {}});
        tree.add({.parent = n, .token = token});
      }
    }

    std::vector<float> flat;
    std::vector<const float*> rows;
    std::vector<int> index(static_cast<size_t>(tree.size()));
    std::iota(index.begin(), index.end(), 0);
    for (int n = 0; n < tree.size(); ++n)
      flat.insert(flat.end(), logits[n].begin(), logits[n].end());
    for (int n = 0; n < tree.size(); ++n) rows.push_back(flat.data() + n * stride);
    TargetRows target(sampler, tree, rows, stride, history);
    Verdict expected;
    rule->judge(tree, target, expected);
    accepted += static_cast<int>(expected.path.size());

    for (Backend* backend : {cpu_.get(), device_.get()}) {
      BackendJudge judge;
      ASSERT_TRUE(judge.add(*rule, sampler, tree, index, index, history));
      Judge op = judge.ops()[0];
      op.logits = flat.data();
      op.logits_stride = stride;
      const Op list[] = {op};
      backend->run(list);
      Verdict verdict;
      ASSERT_TRUE(judge.read(0, verdict)) << trial;
      EXPECT_EQ(verdict.token, expected.token) << trial << " " << name << backend->describe();
      EXPECT_EQ(verdict.path, expected.path) << trial << " " << name << backend->describe();
    }
  }
  EXPECT_GT(accepted, 30);
}

TEST_F(JudgeTest, BrokenRowsAreReportedWhereTheyAreAskedFor) {
  for (const std::string name : {"greedy", "coupled", "rejection"}) {
    for (const float broken : {NAN, kInfinity, -kInfinity}) {
      Sampler sampler({.temperature = 1.0f}, 20, {});
      std::vector<float> logits(20, broken == -kInfinity ? -kInfinity : 0.0f);
      logits[13] = broken;
      TokenTree tree;
      tree.reset(1, 0);
      const std::vector<int> zero = {0};
      const std::vector<int32_t> history = {1};
      for (Backend* backend : {cpu_.get(), device_.get()}) {
        BackendJudge judge;
        ASSERT_TRUE(judge.add(*make_rule(name), sampler, tree, zero, zero, history));
        Judge op = judge.ops()[0];
        op.logits = logits.data();
        op.logits_stride = 20;
        const Op list[] = {op};
        backend->run(list);
        Verdict verdict;
        EXPECT_FALSE(judge.read(0, verdict)) << name << broken << backend->describe();
      }
    }
  }
  BackendJudge judge;
  TokenTree tree;
  tree.reset(1, 0);
  const Sampler sampler({}, 20, {});
  EXPECT_FALSE(judge.add(*make_rule("typical"), sampler, tree, {}, {}, {}));
}

}  // namespace

namespace cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

struct TeamCase {
  const float* logits;
  int count;
  Filters filters;
  double* weight;
  float* p;
  double* sum;
  int32_t* drawn;
};

template <class Team>
void all_of(Team& team, const TeamCase& c) {
  const Best best = best_logit(team, c.logits, c.count);
  const uint64_t units = warp_row(team, c.logits, c.count, best, c.filters, c.weight);
  normalise_row(team, c.weight, c.count, units, c.p);
  const double sum = team.sum(c.count, [&](int i) { return static_cast<double>(c.p[i]); });
  const int drawn = team.draw(c.weight, c.count, units * kWeightUnit, 0.7310585786300049);
  const int32_t token =
      coupled_token(team, c.logits, c.count, best, c.filters, {4, 2}, 77, c.weight);
  if (!team.leads()) return;
  c.sum[0] = sum;
  c.drawn[0] = drawn;
  c.drawn[1] = token;
}

__global__ void team_kernel(TeamCase c) {
  COPPICE_BLOCK_TEAM(team);
  all_of(team, c);
}

TEST(Team, ABlockGivesTheHostsBits) {
  std::mt19937 random(8);
  for (int trial = 0; trial < 24; ++trial) {
    const int count = std::vector<int>{1, 2, 61, 511, 513, 3000}[trial % 6];
    const std::vector<float> logits = random_logits(random, count);
    const SamplingParams params = random_params(random, count);
    const double inverse = params.temperature > 0.0f ? 1.0 / params.temperature : 1.0;
    struct Result {
      std::vector<double> weight;
      std::vector<float> p;
      double sum;
      int32_t drawn[2];
    };
    Result host{std::vector<double>(count), std::vector<float>(count), 0, {}}, device = host;
    for (Result* result : {&host, &device}) {
      const TeamCase c{logits.data(),
                       count,
                       {inverse, params.top_k, params.top_p, params.min_p},
                       result->weight.data(),
                       result->p.data(),
                       &result->sum,
                       result->drawn};
      if (result == &host) {
        LoneTeam team;
        all_of(team, c);
      } else {
        launch<team_kernel>({"team", extent(1), extent(kTeamLanes)}, c);
      }
    }
    EXPECT_EQ(host.p, device.p) << trial;
    EXPECT_EQ(host.sum, device.sum) << trial;
    EXPECT_EQ(host.drawn[0], device.drawn[0]) << trial;
    EXPECT_EQ(host.drawn[1], device.drawn[1]) << trial;

    // And the definition's, and the Sampler's.
    std::vector<double> weight(count);
    warp_weights(logits.data(), count, {inverse, params.top_k, params.top_p, params.min_p},
                 weight.data());
    for (int i = 0; i < count; ++i) EXPECT_EQ(host.p[i] > 0.0f, weight[i] > 0.0) << trial;
    SamplingParams plain = params;
    plain.temperature = static_cast<float>(1.0 / inverse);
    plain.penalty_window = 0;
    plain.logit_bias.clear();
    Sampler sampler(plain, count, {});
    const auto p = sampler.probabilities(logits, {});
    EXPECT_EQ(std::vector<float>(p.begin(), p.end()), host.p) << trial;
  }
}

/// The fault of a published kernel: the residual is drawn by the uniform of the accept coin.
struct OneUniform : JudgedTarget<LoneTeam> {
  bool accept(double probability, int node) const {
    return uniform(op.node[node].parent, Purpose::residual, 0) < probability;
  }
};

TEST(Judge, OneUniformUsedTwiceIsCaught) {
  constexpr int kVocabulary = 4, kDraws = 20000;
  const std::vector<float> p = {0.1f, 0.2f, 0.3f, 0.4f}, q = {0.4f, 0.3f, 0.2f, 0.1f};
  std::vector<float> logits;
  for (const float x : p) logits.push_back(std::log(x));
  LoneTeam team;
  const auto worst_deviation = [&](bool faulty) {
    std::vector<double> seen(kVocabulary, 0.0);
    for (int draw = 0; draw < kDraws; ++draw) {
      Sampler sampler({.temperature = 1.0f, .seed = static_cast<uint64_t>(draw)}, kVocabulary, {});
      TokenTree tree;
      tree.reset(0, 1);
      tree.add(
          {.parent = 0, .token = sampler.draw_draft(q, 0, 1, 1), .q_row = tree.q.add_dense(q)});
      const std::vector<int> index = {0, 1};
      const std::vector<int32_t> history = {0};
      std::vector<float> rows(logits);
      rows.insert(rows.end(), logits.begin(), logits.end());
      BackendJudge judge;
      judge.add(*make_rule("rejection"), sampler, tree, index, index, history);
      Judge op = judge.ops()[0];
      op.logits = rows.data();
      op.logits_stride = kVocabulary;
      float floats[2 * kVocabulary];
      double doubles[3 * kVocabulary];
      const JudgeScratch scratch{floats, doubles, floats + kVocabulary, doubles + kVocabulary,
                                 doubles + 2 * kVocabulary};
      if (faulty) {
        OneUniform target{{team, op, scratch}};
        VerdictPath<LoneTeam> path{team, op.verdict};
        const int32_t next = rejection_walk(team, JudgedTree{op}, target, target,
                                            {scratch.residual, scratch.remaining}, path);
        write_verdict(team, op.verdict, path.count, next);
      } else {
        walk_by_rejection(team, op, scratch);
      }
      const int32_t first = op.verdict[0] > 0 ? tree.token(op.verdict[2]) : op.verdict[1];
      seen[static_cast<size_t>(first)] += 1.0 / kDraws;
    }
    double worst = 0.0;
    for (int i = 0; i < kVocabulary; ++i) worst = std::max(worst, std::abs(seen[i] - p[i]));
    return worst;
  };
  EXPECT_LT(worst_deviation(false), 0.015);  // four standard deviations are 0.014
  EXPECT_GT(worst_deviation(true), 0.03);
}

}  // namespace
}  // namespace COPPICE_CUDA_BUILD
}  // namespace cuda
}  // namespace coppice
