// Where an answer ends and what may be shown before it is certain: stop strings that span tokens,
// begin inside one, or never come true.
#include "decoding/stop.h"

#include <gtest/gtest.h>

#include "tests/tiny_model.h"

namespace coppice {
namespace {

// Token i is the text "<i>".
class StopTest : public testing::Test {
 protected:
  // Pushes tokens until the answer ends; `shown` collects what was safe after each.
  Finish push(StopWatch& watch, std::vector<int32_t> tokens) {
    for (int32_t token : tokens) {
      const StopWatch::Step step = watch.push(token);
      shown.push_back(step.text);
      if (step.finish != Finish::running) return step.finish;
    }
    return Finish::running;
  }
  std::string text() const {
    std::string all;
    for (const std::string& piece : shown) all += piece;
    return all;
  }

  Tokenizer tokenizer_ = test::TinyModel({}).tokenizer();
  std::vector<std::string> shown;
};

// C050, C052: no byte of a possible stop is shown before it is resolved, none of a real one ever.
TEST_F(StopTest, AStopStringAcrossTokensIsHeldBackAndCut) {
  StopWatch watch(&tokenizer_, {.strings = {"2><3><4"}});
  EXPECT_EQ(push(watch, {1, 2, 3, 4, 5}), Finish::stop);
  EXPECT_EQ(shown, (std::vector<std::string>{"<1>", "<", "", ""}));
  EXPECT_EQ(text(), "<1><");
  EXPECT_EQ(watch.tokens(), 4);
  EXPECT_EQ(watch.finish(), "");
}

TEST_F(StopTest, WhatOnlyBeganLikeAStopIsShownInTheEnd) {
  StopWatch watch(&tokenizer_, {.strings = {"2><3><4"}, .max_new_tokens = 4});
  EXPECT_EQ(push(watch, {2, 3, 5, 2}), Finish::length);
  EXPECT_EQ(shown, (std::vector<std::string>{"<", "", "2><3><5>", "<"}));
  EXPECT_EQ(watch.finish(), "2>");
}

TEST_F(StopTest, TheEarliestOfSeveralStopsCuts) {
  StopWatch watch(&tokenizer_, {.strings = {"3>", "2><3"}});
  EXPECT_EQ(push(watch, {1, 2, 3}), Finish::stop);
  EXPECT_EQ(text(), "<1><");
}

// C043: one token that is a stop and the last allowed is a stop.
TEST_F(StopTest, AStopOutranksTheTokenLimit) {
  StopWatch by_token(&tokenizer_, {.tokens = {7}, .max_new_tokens = 2});
  EXPECT_EQ(push(by_token, {1, 7}), Finish::stop);
  EXPECT_EQ(text(), "<1>");  // a stop token has no text
  StopWatch by_text(&tokenizer_, {.strings = {"<7>"}, .max_new_tokens = 2});
  EXPECT_EQ(push(by_text, {1, 7}), Finish::stop);
  StopWatch by_length(&tokenizer_, {.strings = {"<7>"}, .max_new_tokens = 1});
  EXPECT_EQ(push(by_length, {1, 7}), Finish::length);
}

TEST_F(StopTest, WithoutATokenizerThereIsNoTextAndNoStopString) {
  StopWatch watch(nullptr, {.tokens = {9}, .max_new_tokens = 5});
  EXPECT_EQ(push(watch, {1, 9}), Finish::stop);
  EXPECT_EQ(text(), "");
  EXPECT_DEATH(StopWatch(nullptr, {.strings = {"x"}}), "tokenizer");
}

}  // namespace
}  // namespace coppice
