// TOML files as option tables, and the overrides of a command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "experiments/toml_source.h"

namespace coppice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string parse_error(std::string_view text) {
  try {
    parse_toml(text, "c.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Toml, TablesAndEntriesKeepTheOrderOfTheFileAndKnowTheirLines) {
  const auto tables = parse_toml(
      "loose = 1\n"
      "[zebra]\n"
      "b = true\n"
      "a = 0.5\n"
      "[[method]]\n"
      "name = 'x'\n"
      "[apple]\n"
      "[[method]]\n"
      "sizes = [1, 2]\n"
      "scores = [1, 2.5]\n"
      "words = [\"p\", \"q\"]\n",
      "c.toml");
  ASSERT_EQ(tables.size(), 5u);
  EXPECT_EQ(tables[0].name, "");
  EXPECT_EQ(tables[0].entries[0].place, "c.toml:1");
  EXPECT_EQ(tables[1].name, "zebra");
  EXPECT_EQ(tables[1].place, "c.toml:2");
  ASSERT_EQ(tables[1].entries.size(), 2u);
  EXPECT_EQ(tables[1].entries[0].key, "b");
  EXPECT_EQ(std::get<bool>(tables[1].entries[0].value), true);
  EXPECT_EQ(std::get<double>(tables[1].entries[1].value), 0.5);
  EXPECT_EQ(tables[1].entries[1].place, "c.toml:4");
  EXPECT_EQ(tables[2].name, "method");
  EXPECT_EQ(std::get<std::string>(tables[2].entries[0].value), "x");
  EXPECT_EQ(tables[3].name, "apple");
  EXPECT_EQ(tables[4].name, "method");
  EXPECT_EQ(tables[4].place, "c.toml:8");
  EXPECT_THAT(std::get<std::vector<int64_t>>(tables[4].entries[0].value), ElementsAre(1, 2));
  EXPECT_THAT(std::get<std::vector<double>>(tables[4].entries[1].value), ElementsAre(1.0, 2.5));
  EXPECT_THAT(std::get<std::vector<std::string>>(tables[4].entries[2].value),
              ElementsAre("p", "q"));
}

TEST(Toml, ErrorsNameFileAndLineOnOneLine) {
  EXPECT_THAT(parse_error("[bench]\nseed = \n"), HasSubstr("c.toml:2: "));
  EXPECT_THAT(parse_error("a = 1\n\na = 2\n"), HasSubstr("c.toml:3: "));
  EXPECT_THAT(parse_error("a = \"\xff\xfe\"\n"), HasSubstr("c.toml:1: "));
  for (const char* text : {"a = 'b\nc'", "[", "a = 1 2", "= 3", "a.b.c = ["}) {
    const std::string message = parse_error(text);
    EXPECT_THAT(message, HasSubstr("c.toml:")) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << text;
  }
}

TEST(Toml, WhatConfigsDoNotUseIsRefused) {
  EXPECT_THAT(parse_error("[a.b]\nc = 1\n"), HasSubstr("tables nest one level deep"));
  EXPECT_THAT(parse_error("[a]\nd = 2026-11-30\n"), HasSubstr("c.toml:2: 'd': dates"));
  EXPECT_THAT(parse_error("[a]\nd = [1, 'x']\n"), HasSubstr("c.toml:2: 'd': the list mixes"));
  EXPECT_THAT(parse_error(std::string(70'000, '#')), HasSubstr("at most 65536"));
}

TEST(Toml, ADeeplyDottedKeyEndsInAnError) {
  std::string text = "a";
  while (text.size() < 4'000) text += ".a";
  EXPECT_THAT(parse_error(text + " = 1\n"), HasSubstr("tables nest one level deep"));
  while (text.size() < 65'000) text += ".a";
  EXPECT_THAT(parse_error(text + " = 1\n"), HasSubstr("a config nests one level deep"));
}

TEST(Toml, AFileThatCannotBeReadIsAnError) {
  EXPECT_THROW(read_toml("/nowhere/c.toml"), Error);
  EXPECT_THROW(read_toml(std::filesystem::temp_directory_path()), Error);
}

TEST(Override, ValuesAreToml) {
  const Override seed = parse_override("bench.seed=7");
  EXPECT_EQ(seed.table, "bench");
  EXPECT_EQ(seed.label, "");
  EXPECT_EQ(seed.key, "seed");
  EXPECT_EQ(std::get<int64_t>(seed.value), 7);
  EXPECT_EQ(seed.place, "--set bench.seed");
  EXPECT_EQ(std::get<double>(parse_override("a.b=0.5").value), 0.5);
  EXPECT_EQ(std::get<bool>(parse_override("a.b=true").value), true);
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=\"q=r\"").value), "q=r");
  EXPECT_THAT(std::get<std::vector<int64_t>>(parse_override("a.b=[1, 2]").value),
              ElementsAre(1, 2));
}

TEST(Override, WhatIsNotTomlIsABareWord) {
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=coupled").value), "coupled");
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=/tmp/x y.gguf").value), "/tmp/x y.gguf");
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=").value), "");
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=5x").value), "5x");
  EXPECT_EQ(std::get<std::string>(parse_override("a.b=1\nc = 2").value), "1\nc = 2");
}

TEST(Override, ALabelPicksOneOfSeveralTables) {
  const Override one = parse_override("method.pld 3.draft_length=5");
  EXPECT_EQ(one.table, "method");
  EXPECT_EQ(one.label, "pld 3");
  EXPECT_EQ(one.key, "draft_length");
}

TEST(Override, WhatIsNoOverrideSaysHowToWriteOne) {
  for (const char* text : {"", "seed", "seed=3", "bench.seed"}) {
    try {
      parse_override(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("write it as --set sampling.temperature=0.8"));
    }
  }
}

}  // namespace
}  // namespace coppice
