// Lookahead against an independent plain decoder: no engine, no tree, no cache, one whole forward
// for every question. Same tokens, and the same number of them in every step.
//
// Source of both: Fu 2024, Alg. 2.
#include "drafters/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "decoding/engine.h"
#include "decoding/packed_batch.h"
#include "kernels/shared/noise.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;
using Tokens = std::vector<int32_t>;

class Plain {
 public:
  Plain(const Model& model, Backend& backend)
      : model_(model),
        cache_(backend, model.kv_shapes(), 16),
        workspace_(model, backend, {.rows = 256, .logit_rows = 1}) {}

  /// The most likely token behind a text, by a forward over all of it.
  int32_t next(const Tokens& text) {
    const auto known = known_.find(text);
    if (known != known_.end()) return known->second;
    const SeqId sequence = cache_.open();
    int32_t best = 0;
    {
      const auto tail = cache_.reserve(sequence, static_cast<int>(text.size()));
      PackedBatch packed;
      packed.clear();
      packed.add(text, nullptr, 0, cache_.pages(sequence), true);
      const ForwardOutput output = model_.forward(packed.batch(), cache_, workspace_);
      const std::span<const float> logits = output.logits.first(output.vocabulary);
      best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    cache_.close(sequence);
    return known_[text] = best;
  }

 private:
  const Model& model_;
  KVCache cache_;
  Workspace workspace_;
  std::map<Tokens, int32_t> known_;
};

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Tokens that each of the first `steps` steps emits.
std::vector<int> plain_lookahead(Plain& plain, Tokens text, const LookaheadOptions& o, int steps) {
  const int levels = o.ngram - 1;
  std::vector<Tokens> window(1);  // window[l]: level l; level 0 without the last token itself
  std::map<int32_t, std::vector<Tokens>> pool;
  std::vector<int> emitted;
  text.push_back(plain.next(text));  // the prefill's token
  for (int i = 0; i < o.window + o.ngram - 3; ++i) {
    const Philox4x32 word = noise({}, static_cast<int>(text.size()) - 1, i, Purpose::drafter, 0);
    window[0].push_back(text[static_cast<size_t>(to_uniform(word) * text.size())]);
  }
  for (int step = 0; step < steps; ++step) {
    // Lookahead branch: what follows each column, read along its diagonal of the window.
    Tokens results;
    for (size_t column = 0; column <= window[0].size(); ++column) {
      Tokens seen = joined(text, Tokens(window[0].begin(), window[0].begin() + column));
      for (size_t l = 1; l < window.size(); ++l) seen.push_back(window[l][column]);
      results.push_back(plain.next(seen));
    }
    // Verification branch: the n-gram of which most is right.
    const int32_t last = text.back();
    Tokens accepted;
    for (const Tokens& guess : pool[last]) {
      Tokens right;
      for (int32_t token : guess) {
        if (plain.next(joined(text, right)) != token) break;
        right.push_back(token);
      }
      if (right.size() > accepted.size()) accepted = right;
    }
    // The window's columns are n-grams once it is full; then its levels move down, before that its
    // columns to the front.
    if (static_cast<int>(window.size()) == levels) {
      for (int column = 0; column < o.window; ++column) {
        Tokens gram;
        for (int l = 1; l < levels; ++l) gram.push_back(window[l][column]);
        gram.push_back(results[column]);
        auto& set = pool[column == 0 ? last : window[0][column - 1]];
        std::erase(set, gram);
        if (static_cast<int>(set.size()) == o.guesses) set.erase(set.begin());
        set.push_back(gram);
      }
      window.erase(window.begin());
      window.push_back(results);
      window[0].erase(window[0].begin());
    } else {
      for (Tokens& level : window) level.erase(level.begin());
      window.push_back({results.begin() + 1, results.end()});
    }
    text = joined(text, accepted);
    text.push_back(plain.next(text));
    emitted.push_back(static_cast<int>(accepted.size()) + 1);
  }
  return emitted;
}

// C038, C040: the pool's n-grams are those that were emitted, and as many are verified as the set
// of guesses holds, whatever the window.
TEST(Lookahead, TokensPerStepEqualAPlainImplementations) {
  const auto backend = make_backend({.name = "reference", .threads = 1});
  const auto rule = make_rule("greedy");
  int accepted = 0;
  // Models whose answers run in loops, so that n-grams come again.
  for (uint32_t seed : {1u, 2u}) {
    const TinyModel tiny({.vocabulary = 12,
                          .layers = 1,
                          .dim = 32,
                          .ffn = 32,
                          .heads = 1,
                          .kv_heads = 1,
                          .context = 256,
                          .sharpness = 3.0f,
                          .seed = seed});
    const Model model(tiny.source(), *backend);
    Plain plain(model, *backend);
    for (const LookaheadOptions& options :
         {LookaheadOptions{}, LookaheadOptions{.ngram = 3, .window = 3, .guesses = 2},
          LookaheadOptions{.ngram = 3, .window = 2, .guesses = 6},
          LookaheadOptions{.ngram = 4, .window = 1, .guesses = 1}}) {
      const Tokens prompt = {3, 1, 4, 1, 5};
      constexpr int kSteps = 16;
      const std::vector<int> expected = plain_lookahead(plain, prompt, options, kSteps);
      Lookahead drafter(options);
      Engine engine({&model, backend.get(), nullptr, rule.get(), &drafter},
                    {.context = 256, .budget = drafter.needs().most_nodes});
      std::vector<int> emitted;
      engine.on_step = [&](const StepRecord& record) {
        if (!record.prefill) emitted.push_back(record.emitted);
        accepted += record.accepted;
      };
      engine.submit({.prompt = prompt, .stop = {.max_new_tokens = 200}});
      while (static_cast<int>(emitted.size()) < kSteps && engine.step()) {
        engine.cache().poison_uncommitted();
      }
      EXPECT_EQ(emitted, expected) << "model " << seed << ", N " << options.ngram;
    }
  }
  EXPECT_GT(accepted, 20);
}

/// The probes of a step's tree by depth, and its verify paths.
struct Shape {
  std::vector<int> probes_at_depth;
  int probes = 0, verify = 0;
};
Shape shape_of(const TokenTree& tree) {
  Shape shape;
  for (int node = 1; node < tree.size(); ++node) {
    if (tree.role(node) == NodeRole::verify) {
      ++shape.verify;
      continue;
    }
    ++shape.probes;
    shape.probes_at_depth.resize(
        std::max(shape.probes_at_depth.size(), static_cast<size_t>(tree.depth(node)) + 1));
    ++shape.probes_at_depth[static_cast<size_t>(tree.depth(node))];
  }
  return shape;
}

// The geometry: N=5, W=G=7 is at most 1 + 6 + 21 + 28 rows.
TEST(Lookahead, TheFullWindowHasThePublishedShape) {
  Lookahead drafter(LookaheadOptions{});
  EXPECT_EQ(drafter.needs().most_nodes, 6 + 21 + 28);
  EXPECT_EQ(drafter.needs().top_k, 1);
  Tokens text = {1, 2, 3};
  Shape shape;
  for (int step = 0; step < 4; ++step) {
    TokenTree tree;
    tree.reset(text.back(), 55);
    DraftJob job;
    job.tokens = text;
    job.budget = 55;
    job.tree = &tree;
    drafter.propose({&job, 1});
    shape = shape_of(tree);
    std::vector<int> rows;
    Tokens top;
    for (int node = 0; node < tree.size(); ++node) {
      rows.push_back(node);
      top.push_back(100 + 50 * step + node);
    }
    ForwardOutput output;
    output.top_k = 1;
    output.top_ids = top;
    text.push_back(top[0]);
    Observation seen;
    seen.tokens = text;
    seen.first_position = static_cast<int>(text.size()) - 2;
    seen.tree = &tree;
    seen.node_row = rows;
    seen.output = &output;
    seen.logit_row = rows;
    drafter.observe({&seen, 1});
  }
  EXPECT_EQ(shape.probes, 6 + 21);
  EXPECT_EQ(shape.verify, 0);
  // Columns 1..6 of level 0 at depths 1..6; column c of level l at depth c + l.
  EXPECT_EQ(shape.probes_at_depth, (std::vector<int>{0, 2, 3, 4, 4, 4, 4, 3, 2, 1}));
}

TEST(Lookahead, ThePromptsNgramsMayFillThePool) {
  Lookahead drafter(LookaheadOptions{.ngram = 3, .guesses = 2, .pool_from_prompt = true});
  const Tokens text = {7, 1, 2, 7, 3, 4, 7, 1, 2, 7, 5, 6, 7};
  TokenTree tree;
  tree.reset(7, 64);
  DraftJob job;
  job.tokens = text;
  job.budget = 64;
  job.tree = &tree;
  drafter.propose({&job, 1});
  // Of 1 2, 3 4, 1 2, 5 6 the two seen last stay, the newest first.
  Tokens proposed;
  for (int node = 1; node < tree.size(); ++node) {
    if (tree.role(node) == NodeRole::verify) proposed.push_back(tree.token(node));
  }
  EXPECT_EQ(proposed, (Tokens{5, 6, 1, 2}));
  EXPECT_GT(tree.score(tree.find_child(0, 5)), tree.score(tree.find_child(0, 1)));
}

}  // namespace
}  // namespace coppice
