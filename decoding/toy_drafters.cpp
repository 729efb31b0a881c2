// The certificate's cases. A drafter may decide by its ancestors and by q(. | parent) whether and
// how to go on, and by nothing it draws below or beside: dropping a drawn token for what it is
// would bias the text.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "decoding/certificate.h"

namespace coppice {
namespace {

using Distribution = std::vector<float>;

/// What a drafter works with while it grows one tree.
class Grower {
 public:
  Grower(const ToyModel& model, const Tokens& context, Sampler& sampler, Coins& coins,
         TokenTree& tree)
      : model_(model), context_(context), sampler_(sampler), coins_(coins), tree_(tree) {}

  /// The draft model's warped distribution behind `node`.
  Distribution q(int node) const {
    Tokens path;
    tree_.path_tokens(node, path);
    Tokens all = context_;
    all.insert(all.end(), path.begin(), path.end());
    const std::span<const float> p = sampler_.probabilities(model_(all), {context_, path});
    return {p.begin(), p.end()};
  }

  int point(int parent, int32_t token, NodeRole role = NodeRole::verify) {
    return tree_.add({.parent = parent, .token = token, .role = role});
  }
  int point_argmax(int parent) {
    const Distribution row = q(parent);
    return point(parent,
                 static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
  }

  /// Children of `parent` drawn from `row`, `count` of them or as many as it can give.
  std::vector<int> sampled(int parent, Distribution row, int count, bool without_replacement,
                           bool sparse) {
    const int q_row =
        sparse ? add_sparse(row, without_replacement) : tree_.q.add_dense(row, without_replacement);
    std::vector<int> nodes;
    for (int i = 0; i < count; ++i) {
      const int32_t token = draw(row);
      if (token < 0) break;
      if (without_replacement) row[static_cast<size_t>(token)] = 0.0f;
      nodes.push_back(tree_.add({.parent = parent, .token = token, .q_row = q_row}));
    }
    return nodes;
  }
  int sampled_one(int parent) { return sampled(parent, q(parent), 1, false, false).front(); }

  int32_t draw(const Distribution& row) {
    const std::vector<double> weights(row.begin(), row.end());
    double total = 0.0;
    for (const double weight : weights) total += weight;
    return total > 0.0 ? coins_.draw(weights, total) : -1;
  }
  int add_sparse(const Distribution& row, bool without_replacement) {
    std::vector<int32_t> ids;
    Distribution p;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] == 0.0f) continue;
      ids.push_back(static_cast<int32_t>(i));
      p.push_back(row[i]);
    }
    return tree_.q.add_sparse(ids, p, without_replacement);
  }
  TokenTree& tree() { return tree_; }

 private:
  const ToyModel& model_;
  const Tokens& context_;
  Sampler& sampler_;
  Coins& coins_;
  TokenTree& tree_;
};

using Grow = void (*)(Grower&);

void no_draft(Grower&) {}

void point_chain(Grower& g) {
  int node = 0;
  for (int depth = 0; depth < 3; ++depth) node = g.point_argmax(node);
}

template <int kLength>
void sampled_chain(Grower& g) {
  int node = 0;
  for (int depth = 0; depth < kLength; ++depth) node = g.sampled_one(node);
}

/// Repeats may occur; the first two siblings have a child each.
void siblings_with_replacement(Grower& g) {
  const std::vector<int> nodes = g.sampled(0, g.q(0), 3, false, true);
  g.sampled_one(nodes[0]);
  g.sampled_one(nodes[1]);
}

void siblings_without_replacement(Grower& g) {
  const std::vector<int> nodes = g.sampled(0, g.q(0), 2, true, true);
  for (const int node : nodes) g.sampled(node, g.q(node), 2, true, false);
}

/// Every token the draft model knows, so that its distribution is used up.
void all_without_replacement(Grower& g) {
  g.sampled(0, g.q(0), 8, true, false);
}

/// Point masses before, between and behind sampled siblings, and a probe.
void mixed_siblings(Grower& g) {
  const Distribution row = g.q(0);
  const int best = g.point_argmax(0);
  g.sampled(0, row, 1, false, false);
  const int32_t vocabulary = static_cast<int32_t>(row.size());
  const int probe = g.point(0, 0, NodeRole::probe);
  g.point(probe, 1, NodeRole::probe);
  g.point(0, (g.tree().token(best) + 1) % vocabulary);
  g.sampled(0, row, 2, true, true);
  g.sampled_one(best);
}

/// Draws from two rows without replacement, taking turns, so that a judge loads each row twice.
void interleaved_rows(Grower& g) {
  Distribution rows[2] = {g.q(0), g.q(0)};
  std::reverse(rows[1].begin(), rows[1].end());
  const int q_rows[2] = {g.add_sparse(rows[0], true), g.tree().q.add_dense(rows[1], true)};
  for (int i = 0; i < 4; ++i) {
    const int32_t token = g.draw(rows[i % 2]);
    if (token < 0) continue;
    rows[i % 2][static_cast<size_t>(token)] = 0.0f;
    g.tree().add({.parent = 0, .token = token, .q_row = q_rows[i % 2]});
  }
}

/// Goes on, and how broadly, by its ancestors and its confidence before drawing.
void adaptive(Grower& g) {
  std::vector<int> level = {0};
  for (int depth = 0; depth < 2; ++depth) {
    std::vector<int> next;
    for (const int node : level) {
      const Distribution row = g.q(node);
      const bool confident = *std::max_element(row.begin(), row.end()) > 0.6f;
      if (depth > 0 && g.tree().token(node) == 0) continue;
      const std::vector<int> children = g.sampled(node, row, confident ? 1 : 2, false, confident);
      next.insert(next.end(), children.begin(), children.end());
    }
    level = std::move(next);
  }
}

/// A draft model that is certain, and says so with a row of its own.
void one_hot_row(Grower& g) {
  Distribution row(g.q(0).size(), 0.0f);
  row.back() = 1.0f;
  const std::vector<int> nodes = g.sampled(0, row, 2, false, true);
  g.sampled_one(nodes.front());
}

struct NamedGrow {
  const char* name;
  Grow grow;
  bool broad = false;  // too many outcomes for more than four tokens
};
constexpr NamedGrow kGrows[] = {
    {"no draft", no_draft},
    {"chain of point masses", point_chain},
    {"sampled chain of 1", sampled_chain<1>},
    {"sampled chain of 2", sampled_chain<2>},
    {"sampled chain of 3", sampled_chain<3>, true},
    {"siblings with replacement", siblings_with_replacement, true},
    {"siblings without replacement", siblings_without_replacement, true},
    {"all tokens without replacement", all_without_replacement},
    {"point masses among sampled siblings", mixed_siblings},
    {"two rows in turns", interleaved_rows},
    {"adaptive tree", adaptive, true},
    {"one-hot row", one_hot_row},
};

struct NamedSampling {
  const char* name;
  SamplingParams params;
  bool thorough = false;  // with long sequences even where a drafter is broad
};
std::vector<NamedSampling> samplings() {
  return {
      {"temperature 1", {.temperature = 1.0f}, true},
      {"temperature 0", {}},
      {"top-k", {.temperature = 0.6f, .top_k = 2}},
      {"top-p", {.temperature = 1.3f, .top_p = 0.7f}},
      {"min-p", {.temperature = 1.0f, .min_p = 0.3f}},
      {"penalties and bias",
       {.temperature = 0.8f,
        .repetition_penalty = 1.5f,
        .presence_penalty = 0.2f,
        .frequency_penalty = 0.3f,
        .penalty_window = 3,
        .logit_bias = {{1, 0.75f}}},
       true},
  };
}

ToyDrafter drafter_of(Grow grow, ToyModel model) {
  return [grow, model](const Tokens& context, Sampler& sampler, Coins& coins, TokenTree& tree) {
    Grower grower(model, context, sampler, coins, tree);
    grow(grower);
  };
}

}  // namespace

std::vector<ToyCase> certificate_cases() {
  std::vector<ToyCase> cases;
  const auto add = [&cases](const NamedGrow& grow, const NamedSampling& sampling, ToyModel target,
                            ToyModel draft, int length) {
    cases.push_back({fmt::format("{}, {}, {} tokens", grow.name, sampling.name, target.vocabulary),
                     target.vocabulary, target, sampling.params, drafter_of(grow.grow, draft),
                     length});
  };
  const std::vector<NamedSampling> warps = samplings();
  for (const NamedGrow& grow : kGrows) {
    for (const NamedSampling& sampling : warps) {
      add(grow, sampling, {1, 3}, {2, 3}, grow.broad && !sampling.thorough ? 2 : 3);
      if (!grow.broad) add(grow, sampling, {3, 4}, {3, 4}, 2);  // the target drafts for itself
    }
  }
  for (const NamedGrow& grow : kGrows) {
    if (!grow.broad) add(grow, warps[0], {4, 5}, {5, 5}, 1);
  }
  const NamedGrow pair{"pair without replacement",
                       [](Grower& g) { g.sampled(0, g.q(0), 2, true, true); }, false};
  add(pair, warps[0], {6, 8}, {7, 8}, 2);
  add(pair, warps[3], {6, 8}, {7, 8}, 2);
  return cases;
}

}  // namespace coppice
