// Independent plain implementations of methods that run a model: one sequence, one token at a time,
// on the reference backend. The engine must emit the same text in the same number of steps.
//
//   Loop plain = plain_draft_model(target, draft, prompt, 4, 60);
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "decoding/engine.h"
#include "drafters/draft_model.h"
#include "drafters/layer_skip.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::TinyModel;
using Tokens = std::vector<int32_t>;

constexpr int kContext = 80;

struct Loop {
  Tokens text;
  int steps = 0;  // after the prefill's own token
  int drafted = 0, accepted = 0;
};

/// A model and what it has read. `logits` after the text so far; `push` reads one token more with
/// some of the layers (empty: all).
class PlainModel {
 public:
  PlainModel(const Model& model, Backend& backend)
      : model_(model),
        cache_(backend, model.kv_shapes(), KVCache::pages_for(2 * kContext)),
        workspace_(model, backend, {.rows = 1, .logit_rows = 1}),
        sequence_(cache_.open()) {}

  void push(int32_t token, std::span<const int> layers = {}) {
    auto tail = cache_.reserve(sequence_, 1);
    const int32_t parent = -1, wanted = 0;
    const SequenceRows rows{0, 1, cache_.committed(sequence_), cache_.pages(sequence_)};
    const ForwardOutput out = model_.forward({.token = {&token, 1},
                                              .parent = {&parent, 1},
                                              .sequences = {&rows, 1},
                                              .logit_rows = {&wanted, 1},
                                              .layers = layers},
                                             cache_, workspace_);
    logits.assign(out.logits.begin(), out.logits.end());
    cache_.commit_all(std::move(*tail));
  }
  int size() const { return cache_.committed(sequence_); }
  void rewind(int size) { cache_.truncate(sequence_, size); }
  int32_t best() const {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  double sure() const {
    double total = 0.0;
    const double most = logits[static_cast<size_t>(best())];
    for (const float logit : logits) total += std::exp(double{logit} - most);
    return 1.0 / total;
  }
  std::vector<float> logits;

 private:
  const Model& model_;
  KVCache cache_;
  Workspace workspace_;
  SeqId sequence_;
};

/// Greedy speculative decoding of a prompt of two tokens or more (the engine drafts behind one
/// alone): `draft(text, most)` gives the chain, the target reads on token by
/// token until it disagrees. `heard(drafted, accepted)` learns how it went.
template <class Draft, class Heard>
Loop plain_loop(PlainModel& target, const Tokens& prompt, int new_tokens, Draft draft,
                Heard heard) {
  Loop loop;
  Tokens all = prompt;
  for (const int32_t token : prompt) target.push(token);
  all.push_back(target.best());
  loop.text = {all.back()};
  while (static_cast<int>(loop.text.size()) < new_tokens &&
         static_cast<int>(all.size()) < kContext) {
    // A draft that could not be delivered is not drafted.
    const int left = std::min(new_tokens - static_cast<int>(loop.text.size()),
                              kContext - static_cast<int>(all.size()));
    const Tokens chain = draft(all, left - 1);
    target.rewind(static_cast<int>(all.size()) - 1);
    target.push(all.back());
    int accepted = 0;
    while (true) {
      const int32_t next = target.best();
      all.push_back(next);
      loop.text.push_back(next);
      if (accepted == static_cast<int>(chain.size()) ||
          chain[static_cast<size_t>(accepted)] != next) {
        break;
      }
      ++accepted;
      target.push(next);
    }
    ++loop.steps;
    loop.drafted += static_cast<int>(chain.size());
    loop.accepted += accepted;
    if (!chain.empty()) heard(static_cast<int>(chain.size()), accepted);
  }
  return loop;
}

Loop plain_draft_model(PlainModel& target, PlainModel& drafter, const Tokens& prompt, int length,
                       int new_tokens) {
  const auto draft = [&](const Tokens& all, int most) {
    drafter.rewind(0);
    for (const int32_t token : all) drafter.push(token);
    Tokens chain;
    while (static_cast<int>(chain.size()) < std::min(length, most)) {
      chain.push_back(drafter.best());
      drafter.push(chain.back());
    }
    return chain;
  };
  return plain_loop(target, prompt, new_tokens, draft, [](int, int) {});
}

Loop plain_layer_skip(PlainModel& target, const std::vector<int>& layers, const Tokens& prompt,
                      const LayerSkipOptions& options, int new_tokens) {
  double matched = 0.5, threshold = options.threshold;
  const auto draft = [&](const Tokens& all, int most) {
    target.rewind(static_cast<int>(all.size()) - 1);  // all layers have read what stands before
    Tokens chain;
    int32_t next = all.back();
    while (static_cast<int>(chain.size()) < std::min(options.draft_length, most)) {
      target.push(next, layers);
      next = target.best();
      chain.push_back(next);
      if (target.sure() < threshold) break;
    }
    return chain;
  };
  const auto heard = [&](int drafted, int accepted) {
    if (!options.adapt) return;
    matched = 0.5 * matched + 0.5 * accepted / drafted;
    const double wanted = threshold + (matched < 0.9 ? 0.01 : -0.01);
    threshold = 0.9 * threshold + 0.1 * wanted;
  };
  return plain_loop(target, prompt, new_tokens, draft, heard);
}

class PlainLoops : public testing::Test {
 protected:
  Loop engine_loop(Drafter& drafter, const Model& target, const Tokens& prompt, int new_tokens) {
    const auto rule = make_rule("greedy");
    Engine engine(
        {.target = &target, .backend = backend_.get(), .rule = rule.get(), .drafter = &drafter},
        {.context = kContext, .budget = drafter.needs().most_nodes});
    Loop loop;
    engine.on_step = [&](const StepRecord& record) {
      loop.drafted += record.drafted;
      loop.accepted += record.accepted;
    };
    Request request;
    request.prompt = prompt;
    request.stop.max_new_tokens = new_tokens;
    const RequestId id = engine.submit(std::move(request));
    while (engine.step()) {
    }
    loop.text = engine.answer(id).ids;
    loop.steps = engine.answer(id).steps;
    return loop;
  }
  static void expect_same(const Loop& engine, const Loop& plain) {
    EXPECT_EQ(engine.text, plain.text);
    EXPECT_EQ(engine.steps, plain.steps);
    EXPECT_EQ(engine.drafted, plain.drafted);
    EXPECT_EQ(engine.accepted, plain.accepted);
  }

  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
  TinyModel tiny_{{.layers = 4, .sharpness = 4.0f}};
  Model target_{tiny_.source(), *backend_};
  const Tokens prompts_[3] = {
      {7, 4}, {3, 1, 4, 1, 5, 9, 2, 6}, {2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5}};
};

TEST_F(PlainLoops, DraftModelChain) {
  const TinyModel other_tiny({.layers = 1, .sharpness = 4.0f, .seed = 1});
  const Model other(other_tiny.source(), *backend_);
  const Tokenizer tokenizer = tiny_.tokenizer();
  for (const Model* draft : {&std::as_const(target_), &other}) {
    int drafted = 0, accepted = 0;
    for (const Tokens& prompt : prompts_) {
      for (const int length : {1, 4}) {
        DraftModel drafter({.draft_length = length}, {.target = &target_,
                                                      .tokenizer = &tokenizer,
                                                      .backend = backend_.get(),
                                                      .draft_model = draft,
                                                      .draft_tokenizer = &tokenizer,
                                                      .context = kContext});
        PlainModel plain_target(target_, *backend_), plain_draft(*draft, *backend_);
        const Loop plain = plain_draft_model(plain_target, plain_draft, prompt, length, 60);
        expect_same(engine_loop(drafter, target_, prompt, 60), plain);
        drafted += plain.drafted;
        accepted += plain.accepted;
      }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_EQ(accepted == drafted, draft == &target_);
  }
}

TEST_F(PlainLoops, LayerSkip) {
  struct Case {
    LayerSkipOptions options;
    std::vector<int> layers;
  };
  int drafted = 0, accepted = 0;
  for (const Case& tried :
       {Case{{.skip = {1}}, {0, 2, 3}}, Case{{.threshold = 0.3}, {0, 2, 3}},
        Case{{.exit = 3, .draft_length = 3, .threshold = 0.0, .adapt = false}, {0, 1, 2}}}) {
    for (const Tokens& prompt : prompts_) {
      LayerSkip drafter(tried.options,
                        {.target = &target_, .backend = backend_.get(), .context = kContext});
      PlainModel plain(target_, *backend_);
      const Loop loop = plain_layer_skip(plain, tried.layers, prompt, tried.options, 60);
      expect_same(engine_loop(drafter, target_, prompt, 60), loop);
      drafted += loop.drafted;
      accepted += loop.accepted;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, drafted);
}

}  // namespace
}  // namespace coppice
