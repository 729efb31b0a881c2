// Options: parsing, defaults, range and type errors, near keys, help and manifest from one visit.
#include "core/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sample {
  bool stream = true;
  int count = 3;
  uint32_t request = 0;
  uint64_t seed = 7;
  float temperature = 0.1f;
  double weight = 2.0;
  std::string rule = "greedy";
  std::string name;
  std::vector<int> sizes = {1, 2};
  std::vector<double> scores;
  std::vector<std::string> words;

  template <class V>
  void visit(V& v) {
    v("stream", stream, "print as it comes");
    v("count", count, "how many", Range{1, 64});
    v("request", request, "number in the noise address");
    v("seed", seed, "of all noise");
    v("temperature", temperature, "of the distribution", Range{0, 100});
    v("weight", weight, "any number");
    v("rule", rule, "acceptance rule", OneOf{{"greedy", "coupled"}});
    v("name", name, "any text");
    v("sizes", sizes, "sizes", Range{1, 8});
    v("scores", scores, "scores");
    v("words", words, "words");
  }
};

std::string error_of(const OptionMap& map) {
  try {
    read_options<Sample>(map, "sample.toml [sample]");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
std::string error_of(std::string key, OptionValue value) {
  return error_of(OptionMap{{std::move(key), std::move(value), "sample.toml:12"}});
}

TEST(Options, EveryTypeIsRead) {
  const auto sample = read_options<Sample>({{"stream", false, ""},
                                            {"count", int64_t{64}, ""},
                                            {"request", int64_t{4294967295}, ""},
                                            {"seed", int64_t{5'000'000'000}, ""},
                                            {"temperature", 0.75, ""},
                                            {"weight", int64_t{-4}, ""},
                                            {"rule", std::string("coupled"), ""},
                                            {"name", std::string("a b"), ""},
                                            {"sizes", std::vector<int64_t>{8, 1}, ""},
                                            {"scores", std::vector<int64_t>{1, 2}, ""},
                                            {"words", std::vector<std::string>{"x", "y"}, ""}},
                                           "");
  EXPECT_FALSE(sample.stream);
  EXPECT_EQ(sample.count, 64);
  EXPECT_EQ(sample.request, 4294967295u);
  EXPECT_EQ(sample.seed, 5'000'000'000u);
  EXPECT_EQ(sample.temperature, 0.75f);
  EXPECT_EQ(sample.weight, -4.0);
  EXPECT_EQ(sample.rule, "coupled");
  EXPECT_EQ(sample.name, "a b");
  EXPECT_THAT(sample.sizes, ElementsAre(8, 1));
  EXPECT_THAT(sample.scores, ElementsAre(1.0, 2.0));
  EXPECT_THAT(sample.words, ElementsAre("x", "y"));
}

TEST(Options, WhatIsNotGivenKeepsItsDefault) {
  const auto sample = read_options<Sample>({}, "");
  EXPECT_EQ(sample.count, 3);
  EXPECT_THAT(sample.sizes, ElementsAre(1, 2));
}

TEST(Options, AnEmptyListFitsEveryList) {
  const auto sample = read_options<Sample>({{"sizes", std::vector<std::string>{}, ""}}, "");
  EXPECT_TRUE(sample.sizes.empty());
}

TEST(Options, AnUnknownKeyNamesTheNearestAndTheLine) {
  EXPECT_EQ(error_of("temperatur", 0.8),
            "sample.toml:12: 'temperatur': unknown key; did you mean 'temperature'?");
  EXPECT_THAT(error_of("tepmerature", 0.8), HasSubstr("did you mean 'temperature'?"));
  EXPECT_THAT(error_of("cuont", int64_t{1}), HasSubstr("did you mean 'count'?"));
}

TEST(Options, AKeyLikeNoOtherListsThemAll) {
  EXPECT_THAT(error_of("zzzzzzzzzz", true), HasSubstr("there are: stream, count, request, seed"));
  EXPECT_THAT(error_of(std::string(100'000, 'a'), true), HasSubstr("unknown key; there are:"));
}

TEST(Options, HostileTextStaysOnOneLine) {
  const std::string message = error_of("a\nb\x01", true);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_THAT(message, HasSubstr("'a\\x0ab\\x01'"));
  EXPECT_LT(error_of("name", std::vector<std::string>{std::string(9999, 'x')}).size(), 200u);
}

TEST(Options, NegativeCountsAreRefused) {
  EXPECT_EQ(error_of("count", int64_t{-5}), "sample.toml:12: count: is -5; give a value in 1..64");
  EXPECT_THAT(error_of("request", int64_t{-1}), HasSubstr("request: is -1; give a value in 0.."));
  EXPECT_THAT(error_of("seed", int64_t{-1}), HasSubstr("seed: is -1"));
  EXPECT_THAT(error_of("request", int64_t{4294967296}), HasSubstr("0..4294967295"));
}

TEST(Options, BothEndsOfARangeAreInside) {
  EXPECT_EQ(error_of("count", int64_t{1}), "no error");
  EXPECT_EQ(error_of("count", int64_t{64}), "no error");
  EXPECT_THAT(error_of("count", int64_t{65}), HasSubstr("1..64"));
  EXPECT_THAT(error_of("count", int64_t{4294967297}), HasSubstr("1..64"));
  EXPECT_THAT(error_of("sizes", std::vector<int64_t>{1, 9}), HasSubstr("sizes: is 9"));
}

TEST(Options, WrongTypesAreRefused) {
  EXPECT_EQ(error_of("count", std::string("three")),
            "sample.toml:12: count: is 'three'; give an integer");
  EXPECT_THAT(error_of("count", 3.0), HasSubstr("is '3.0'; give an integer"));
  EXPECT_THAT(error_of("count", true), HasSubstr("give an integer"));
  EXPECT_THAT(error_of("stream", int64_t{1}), HasSubstr("give true or false"));
  EXPECT_THAT(error_of("temperature", std::string("hot")), HasSubstr("give a number"));
  EXPECT_THAT(error_of("name", int64_t{3}), HasSubstr("give text"));
  EXPECT_THAT(error_of("sizes", int64_t{3}), HasSubstr("give a list of integers"));
  EXPECT_THAT(error_of("sizes", std::vector<double>{1.5}), HasSubstr("give a list of integers"));
  EXPECT_THAT(error_of("scores", std::vector<std::string>{"a"}), HasSubstr("a list of numbers"));
  EXPECT_THAT(error_of("words", int64_t{3}), HasSubstr("give a list of texts"));
  EXPECT_THAT(error_of("rule", std::string("greddy")),
              HasSubstr("is 'greddy'; give one of: greedy, coupled"));
}

TEST(Options, NumbersAreFinite) {
  EXPECT_THAT(error_of("temperature", std::nan("")), HasSubstr("is 'nan'; give a finite number"));
  EXPECT_THAT(error_of("weight", std::numeric_limits<double>::infinity()), HasSubstr("finite"));
  EXPECT_THAT(error_of("scores", std::vector<double>{0.0, std::nan("")}), HasSubstr("finite"));
  EXPECT_THAT(error_of("temperature", 1e300), HasSubstr("0..100"));
}

TEST(Options, AKeyIsGivenOnce) {
  EXPECT_EQ(error_of({{"count", int64_t{1}, "a.toml:1"}, {"count", int64_t{2}, "a.toml:2"}}),
            "a.toml:2: count: given twice; remove one");
}

TEST(Options, AnEntryWithoutAPlaceUsesTheCallers) {
  EXPECT_THAT(error_of({{"count", true, ""}}), HasSubstr("sample.toml [sample]: count: "));
}

TEST(Options, HelpHasTypeDefaultAndRange) {
  const auto docs = describe_options<Sample>();
  ASSERT_EQ(docs.size(), 11u);
  EXPECT_EQ(docs[1].key, "count");
  EXPECT_EQ(docs[1].type, "integer");
  EXPECT_EQ(docs[1].default_value, "3");
  EXPECT_EQ(docs[1].range, "1..64");
  EXPECT_EQ(docs[1].help, "how many");
  EXPECT_EQ(docs[2].range, "0 or more");
  EXPECT_EQ(docs[4].default_value, "0.1");
  EXPECT_EQ(docs[6].range, "greedy | coupled");
  EXPECT_EQ(docs[8].default_value, "[1, 2]");
}

TEST(Options, WhatIsDumpedReadsBackTheSame) {
  Sample sample;
  sample.temperature = 0.3f;
  sample.words = {"a"};
  sample.rule = "coupled";
  const OptionMap dumped = dump_options(sample);
  EXPECT_EQ(dumped.size(), describe_options<Sample>().size());
  const auto again = read_options<Sample>(dumped, "");
  EXPECT_EQ(again.temperature, 0.3f);
  EXPECT_EQ(again.rule, "coupled");
  EXPECT_THAT(again.words, ElementsAre("a"));
}

}  // namespace
}  // namespace coppice
