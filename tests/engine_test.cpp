// The engine's promises: the baseline's text under every pattern of accepts and rejects, batch and
// preemption; answers that end where they should; a cache whose pages come back.
#include "decoding/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "kernels/base/error.h"
#include "tests/scripted_drafter.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using test::add_chain;
using test::ScriptedDrafter;
using test::TinyModel;

const std::vector<int32_t> kPrompt = {5, 9, 2, 40, 7, 11};

class EngineTest : public testing::Test {
 protected:
  static constexpr int kContext = 160;

  EngineTest() : model_(tiny_.source(), *backend_, kContext) {}

  Engine make_engine(Drafter* drafter = nullptr, EngineLimits limits = {},
                     std::string_view rule = "greedy") {
    auto& owned = rules_[std::string(rule)];
    if (!owned) owned = make_rule(rule);
    if (limits.budget == 0 && drafter != nullptr) limits.budget = 64;
    return Engine({&model_, backend_.get(), &tokenizer_, owned.get(), drafter}, limits);
  }

  static Request request(std::vector<int32_t> prompt, int max_new_tokens, float temperature = 0) {
    Request asked;
    asked.prompt = std::move(prompt);
    asked.stop.max_new_tokens = max_new_tokens;
    asked.sampling.temperature = temperature;
    asked.sampling.seed = 3;
    return asked;
  }

  Answer run(Engine& engine, Request asked) {
    const RequestId id = engine.submit(std::move(asked));
    while (engine.step()) {
    }
    EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
    return engine.take(id);
  }
  Answer baseline(Request asked) {
    Engine engine = make_engine(nullptr, {}, asked.sampling.temperature > 0 ? "coupled" : "greedy");
    return run(engine, std::move(asked));
  }

  // Proposes `length` tokens of the text `truth`, the one at index `wrong_at` spoilt.
  static ScriptedDrafter::Script follow(std::vector<int32_t> truth, int length, int wrong_at) {
    return [=](DraftJob& job) {
      std::vector<int32_t> draft;
      for (size_t i = job.tokens.size(); i < truth.size(); ++i) {
        if (static_cast<int>(draft.size()) == length) break;
        const bool spoil = static_cast<int>(draft.size()) == wrong_at;
        draft.push_back(spoil ? (truth[i] + 1) % 61 : truth[i]);
      }
      add_chain(*job.tree, draft);
    };
  }
  static std::vector<int32_t> joined(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    std::vector<int32_t> both = a;
    both.insert(both.end(), b.begin(), b.end());
    return both;
  }

  TinyModel tiny_{{.sharpness = 3.0f}};
  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
  Model model_;
  Tokenizer tokenizer_ = tiny_.tokenizer();
  std::map<std::string, std::unique_ptr<AcceptanceRule>> rules_;
};

// C001, C008, C041, C058, C059, C115: any draft length, the draft wrong at any place, NaN in every
// slot that holds nothing committed.
TEST_F(EngineTest, EveryPatternOfRejectionGivesTheBaselinesText) {
  for (float temperature : {0.0f, 1.0f}) {
    const Answer expected = baseline(request(kPrompt, 40, temperature));
    ASSERT_EQ(expected.ids.size(), 40u);
    for (int length : {1, 2, 3, 4, 12, 17, 64}) {
      for (int wrong_at : {-1, 0, 1, 2, length - 1}) {
        ScriptedDrafter drafter(64, follow(joined(kPrompt, expected.ids), length, wrong_at));
        Engine engine = make_engine(&drafter, {}, temperature > 0 ? "coupled" : "greedy");
        const RequestId id = engine.submit(request(kPrompt, 40, temperature));
        while (engine.step()) engine.cache().poison_uncommitted();
        const Answer& answer = engine.answer(id);
        ASSERT_EQ(answer.ids, expected.ids) << "length " << length << ", wrong at " << wrong_at;
        ASSERT_EQ(answer.text, expected.text);
        if (wrong_at < 0) {
          EXPECT_EQ(answer.steps, (39 + length) / (length + 1));  // all accepted, and a bonus each
        }
        if (wrong_at == 0) {
          EXPECT_EQ(answer.steps, 39);
        }
      }
    }
  }
}

// C010, C011, C013, C014, C071, C088: alone, in any order and batch, preempted at any time.
TEST_F(EngineTest, TextDoesNotDependOnCompanyOrPreemption) {
  std::vector<Request> asked;
  std::vector<Answer> alone;
  for (int i = 0; i < 5; ++i) {
    asked.push_back(request({3, 1 + i, 8}, 12 + 5 * i, i % 2 == 0 ? 0.9f : 0.0f));
    asked.back().sampling.request = static_cast<uint32_t>(i);
    alone.push_back(baseline(asked.back()));
  }
  EXPECT_NE(alone[0].ids, baseline([&] {
                            Request other = asked[0];
                            other.sampling.seed = 4;
                            return other;
                          }())
                              .ids);
  for (int sequences : {1, 2, 5}) {
    for (bool reversed : {false, true}) {
      for (int preempt_every : {0, 7}) {
        ScriptedDrafter drafter(6, [](DraftJob& job) {  // two chains, seldom right
          job.tree->add({.parent = 0, .token = 4});
          job.tree->add({.parent = 1, .token = 4});
          job.tree->add({.parent = 0, .token = job.tokens[0]});
        });
        Engine engine = make_engine(
            &drafter, {.sequences = sequences, .chunk_rows = preempt_every > 0 ? 64 : 2},
            "coupled");
        std::map<size_t, RequestId> ids;
        for (size_t i = 0; i < asked.size(); ++i) {
          const size_t at = reversed ? asked.size() - 1 - i : i;
          ids[at] = engine.submit(asked[at]);
        }
        for (int step = 1; engine.step(); ++step) {
          engine.cache().poison_uncommitted();
          if (preempt_every > 0 && step % preempt_every == 0) {
            const RequestId victim = ids[static_cast<size_t>(step) % asked.size()];
            if (engine.answer(victim).finish == Finish::running) engine.preempt(victim);
          }
        }
        for (const auto& [at, id] : ids) {
          EXPECT_EQ(engine.answer(id).ids, alone[at].ids)
              << sequences << " sequences, request " << at;
        }
        EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
      }
    }
  }
}

// C121, C122: too few pages for all: drafts go first, then the youngest; everyone finishes.
TEST_F(EngineTest, AFullCachePreemptsAndEveryAnswerIsStillRight) {
  std::vector<Request> asked;
  std::vector<Answer> alone;
  for (int i = 0; i < 4; ++i) {
    asked.push_back(request(std::vector<int32_t>(30, 2 + i), 60));
    alone.push_back(baseline(asked.back()));
  }
  ScriptedDrafter drafter(8,
                          [](DraftJob& job) { add_chain(*job.tree, std::vector<int32_t>(8, 3)); });
  Engine engine = make_engine(&drafter, {.sequences = 4, .pages = 7});
  std::vector<RequestId> ids;
  for (const Request& each : asked) ids.push_back(engine.submit(each));
  for (int steps = 0; engine.step(); ++steps) ASSERT_LT(steps, 2000);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(engine.answer(ids[i]).ids, alone[i].ids);
  EXPECT_EQ(engine.cache().free_pages(), 7);
  EXPECT_TRUE(std::any_of(drafter.forgotten.begin(), drafter.forgotten.end(),
                          [](const auto& f) { return f.second == Reason::preempted; }));

  Engine small = make_engine(nullptr, {.pages = 2});
  EXPECT_THROW(small.submit(request(std::vector<int32_t>(40, 1), 60)), Error);
}

// C046, C047, C113, C119, C112: never more than asked, never past the context, exactly.
TEST_F(EngineTest, EndsAtTheTokenLimitAndAtTheContext) {
  const Answer expected = baseline(request(kPrompt, 150));
  ScriptedDrafter drafter(8, follow(joined(kPrompt, expected.ids), 8, -1));
  for (int limit : {0, 1, 2, 3, 8, 9, 10, 13}) {
    Engine engine = make_engine(&drafter);
    const Answer answer = run(engine, request(kPrompt, limit));
    EXPECT_EQ(static_cast<int>(answer.ids.size()), limit);
    EXPECT_EQ(answer.finish, Finish::length);
    EXPECT_TRUE(std::equal(answer.ids.begin(), answer.ids.end(), expected.ids.begin()));
  }
  for (int prompt : {1, 31, 32, 64, kContext - 2, kContext - 1}) {
    Engine engine = make_engine(&drafter);
    const Answer answer = run(engine, request(std::vector<int32_t>(prompt, 7), 1000));
    EXPECT_EQ(answer.finish, Finish::context);
    EXPECT_EQ(static_cast<int>(answer.ids.size()), kContext - prompt);
  }
  Engine engine = make_engine();
  EXPECT_THROW(engine.submit(request(std::vector<int32_t>(kContext, 7), 1)), Error);
  EXPECT_THROW(engine.submit(request({}, 1)), Error);
  EXPECT_THROW(engine.submit(request({61}, 1)), Error);
  EXPECT_THROW(engine.submit(request({-1}, 1)), Error);
}

// C043, C044, C050, C146: a stop inside an accepted block cuts it there, in ids, text and counters.
TEST_F(EngineTest, StopsInsideAnAcceptedBlock) {
  const Answer expected = baseline(request(kPrompt, 30));
  for (size_t at : {size_t{1}, size_t{2}, size_t{5}, size_t{9}}) {
    const int32_t token = expected.ids[at];
    const auto first = std::find(expected.ids.begin(), expected.ids.end(), token);
    const std::vector<int32_t> cut(expected.ids.begin(), first + 1);
    Request by_token = request(kPrompt, 30);
    by_token.stop.tokens = {token};
    Request by_text = request(kPrompt, 30);
    by_text.stop.strings = {"<" + std::to_string(token) + ">"};
    std::string shown;
    by_text.on_text = [&](std::string_view text) { shown += text; };
    for (int length : {0, 1, 4, 16}) {
      ScriptedDrafter drafter(16, follow(joined(kPrompt, expected.ids), length, -1));
      Engine engine = make_engine(&drafter);
      int emitted = 0;
      engine.on_step = [&](const StepRecord& record) { emitted += record.emitted; };
      const Answer stopped = run(engine, by_token);
      EXPECT_EQ(stopped.ids, cut);
      EXPECT_EQ(stopped.finish, Finish::stop);
      EXPECT_EQ(emitted, static_cast<int>(cut.size()));
      shown.clear();
      const Answer matched = run(engine, by_text);
      EXPECT_EQ(matched.ids, cut);
      EXPECT_EQ(matched.finish, Finish::stop);
      EXPECT_EQ(shown, matched.text);
      EXPECT_EQ(matched.text.find(by_text.stop.strings[0]), std::string::npos);
    }
    // The stop and the token limit in one block: whichever comes first names the reason.
    ScriptedDrafter drafter(16, follow(joined(kPrompt, expected.ids), 16, -1));
    Engine engine = make_engine(&drafter);
    by_token.stop.max_new_tokens = static_cast<int>(cut.size());
    EXPECT_EQ(run(engine, by_token).finish, Finish::stop);
    by_token.stop.max_new_tokens = static_cast<int>(cut.size()) - 1;
    if (cut.size() > 1) {
      EXPECT_EQ(run(engine, by_token).finish, Finish::length);
    }
  }
  Request ignoring = request(kPrompt, 30);
  ignoring.stop.tokens = {expected.ids[3]};
  ignoring.ignore_eos = true;
  const Answer going_on = baseline(ignoring);
  EXPECT_EQ(going_on.ids.size(), 30u);
  EXPECT_EQ(std::count(going_on.ids.begin(), going_on.ids.end(), expected.ids[3]), 0);
}

// C022, C023, C026, C053: penalties, bias and filters act at every node as in the baseline; the
// log-probabilities are the baseline's.
TEST_F(EngineTest, WarpsAndLogProbabilitiesAreTheBaselinesAtEveryNode) {
  std::vector<SamplingParams> settings(6);
  settings[0].repetition_penalty = 1.5f;
  settings[1].presence_penalty = 2.0f;
  settings[2].frequency_penalty = 1.0f;
  settings[2].penalty_window = 5;
  settings[3].logit_bias = {{4, 3.0f}, {9, -100.0f}};
  settings[4].temperature = 0.8f;
  settings[4].top_k = 7;
  settings[4].min_p = 0.05f;
  settings[5].temperature = 1.3f;
  settings[5].top_p = 0.9f;
  settings[5].repetition_penalty = 1.2f;
  for (size_t s = 0; s < settings.size(); ++s) {
    Request asked = request(kPrompt, 24);
    asked.sampling = settings[s];
    asked.logprobs = 2;
    const Answer expected = baseline(asked);
    for (int wrong_at : {-1, 1, 3}) {
      ScriptedDrafter drafter(8, follow(joined(kPrompt, expected.ids), 5, wrong_at));
      Engine engine = make_engine(&drafter, {}, settings[s].temperature > 0 ? "coupled" : "greedy");
      const Answer answer = run(engine, asked);
      ASSERT_EQ(answer.ids, expected.ids) << "setting " << s;
      ASSERT_EQ(answer.logprobs.size(), answer.ids.size());
      for (size_t i = 0; i < answer.ids.size(); ++i) {
        EXPECT_EQ(answer.logprobs[i].token, expected.logprobs[i].token);
        EXPECT_EQ(answer.logprobs[i].most_likely, expected.logprobs[i].most_likely);
        EXPECT_LT(answer.logprobs[i].token, 0.0f);
      }
    }
  }
}

// C109: one request's broken logits fail that request alone.
TEST_F(EngineTest, NanLogitsFailTheirRequestAlone) {
  Request doomed = request(kPrompt, 20);
  for (int32_t id = 0; id < 61; ++id) {
    doomed.sampling.logit_bias.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  const Answer expected = baseline(request({8, 8}, 20));
  Engine engine = make_engine(nullptr, {.sequences = 2});
  const RequestId bad = engine.submit(doomed);
  const RequestId good = engine.submit(request({8, 8}, 20));
  while (engine.step()) {
  }
  EXPECT_EQ(engine.answer(bad).finish, Finish::failed);
  EXPECT_FALSE(engine.answer(bad).error.empty());
  EXPECT_TRUE(engine.answer(bad).ids.empty());
  EXPECT_EQ(engine.answer(good).ids, expected.ids);
  EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
}

// C125: a cancelled request, running or queued, holds nothing.
TEST_F(EngineTest, CancelFreesAtOnce) {
  Engine engine = make_engine(nullptr, {.sequences = 1});
  const RequestId first = engine.submit(request(kPrompt, 50));
  const RequestId queued = engine.submit(request(kPrompt, 50));
  for (int i = 0; i < 3; ++i) engine.step();
  engine.cancel(first);
  EXPECT_EQ(engine.cache().free_pages(), engine.cache().total_pages());
  engine.cancel(queued);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(engine.answer(queued).finish, Finish::cancelled);
}

// C145, C148: records count what happened.
TEST_F(EngineTest, RecordsCountDraftedReachedAndAccepted) {
  const Answer expected = baseline(request(kPrompt, 30));
  for (int accept : {0, 2, 4}) {
    ScriptedDrafter drafter(4, follow(joined(kPrompt, expected.ids), 4, accept));
    Engine engine = make_engine(&drafter);
    std::vector<StepRecord> records;
    engine.on_step = [&](const StepRecord& record) { records.push_back(record); };
    run(engine, request(kPrompt, 30));
    ASSERT_TRUE(records.front().prefill);
    EXPECT_EQ(records.front().trunk, static_cast<int>(kPrompt.size()));
    EXPECT_EQ(records.front().drafted, 0);
    const StepRecord& steady = records[1];
    EXPECT_FALSE(steady.prefill);
    EXPECT_EQ(steady.drafted, 4);
    EXPECT_EQ(steady.rows, 5);
    EXPECT_EQ(steady.accepted, accept);
    EXPECT_EQ(steady.reached, std::min(accept + 1, 4));
    EXPECT_EQ(steady.emitted, accept + 1);
  }
}

// Observations: kept rows are the accepted path's, in positions' order.
TEST_F(EngineTest, DraftersSeeEveryPositionOnce) {
  const Answer expected = baseline(request(kPrompt, 30));
  ScriptedDrafter drafter(5, follow(joined(kPrompt, expected.ids), 5, 3));
  int next_position = 0;
  drafter.on_observe = [&](const Observation& seen) {
    EXPECT_EQ(seen.first_position, next_position);
    next_position += static_cast<int>(seen.kept_rows.size());
    if (seen.tree != nullptr) {
      EXPECT_EQ(static_cast<int>(seen.tokens.size()), next_position + 1);
      EXPECT_EQ(seen.kept_rows.size(), seen.first_position == 4 ? 2 : 1 + seen.path.size());
    }
  };
  Engine engine = make_engine(&drafter, {.chunk_rows = 4});
  run(engine, request(kPrompt, 30));
  EXPECT_EQ(next_position, static_cast<int>(kPrompt.size()) + 29);
}

}  // namespace
}  // namespace coppice
