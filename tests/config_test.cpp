// TOML files as option tables, overrides, and the whole config of an experiment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/bench_config.h"
#include "experiments/config_json.h"

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
  EXPECT_THAT(parse_error("[a.b.c]\nd = 1\n"), HasSubstr("c.toml:1: 'c': a table too deep"));
  EXPECT_THAT(parse_error("[a]\nd = 2026-11-30\n"), HasSubstr("c.toml:2: 'd': dates"));
  EXPECT_THAT(parse_error("[a]\nd = [1, 'x']\n"), HasSubstr("c.toml:2: 'd': the list mixes"));
  EXPECT_THAT(parse_error(std::string(70'000, '#')), HasSubstr("at most 65536"));
}

TEST(Toml, ADeeplyDottedKeyEndsInAnError) {
  std::string text = "a";
  while (text.size() < 4'000) text += ".a";
  EXPECT_THAT(parse_error(text + " = 1\n"), HasSubstr("a table too deep"));
  while (text.size() < 65'000) text += ".a";
  EXPECT_THAT(parse_error(text + " = 1\n"), HasSubstr("a config nests two levels deep"));
}

// `part.key` and a table [method.part] say the same.
TEST(Toml, ATableInsideATableGivesDottedKeys) {
  const ConfigTables tables =
      parse_toml("[[m]]\nb = 1\np.k = 2\n[m.q]\nk = [3]\n[[m]]\nc = 4\n", "c.toml");
  ASSERT_EQ(tables.size(), 2u);
  ASSERT_EQ(tables[0].entries.size(), 3u);
  EXPECT_EQ(tables[0].entries[1].key, "p.k");
  EXPECT_EQ(tables[0].entries[2].key, "q.k");
  EXPECT_EQ(tables[0].entries[2].place, "c.toml:5");
  OptionMap map = tables[0].entries;
  const OptionMap inner = take_table(map, "p");
  ASSERT_EQ(inner.size(), 1u);
  EXPECT_EQ(inner[0].key, "k");
  EXPECT_EQ(map.size(), 2u);
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

constexpr const char* kSmallest = "[[method]]\nmethod = \"prompt_lookup\"\n";

BenchConfig config_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return make_bench_config(parse_toml(text, "c.toml"), overrides, "c", "");
}
std::string config_error(std::string_view text, const std::vector<std::string>& overrides = {}) {
  try {
    config_of(text, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BenchConfig, TheSmallestConfigIsOneMethod) {
  const BenchConfig config = config_of(kSmallest);
  EXPECT_EQ(config.model.path, "smollm2");
  EXPECT_EQ(config.bench.name, "c");
  EXPECT_EQ(config.bench.prompts, std::vector<std::string>{"builtin"});
  EXPECT_EQ(config.bench.memory, "fresh");
  ASSERT_EQ(config.methods.size(), 1u);
  EXPECT_EQ(config.methods[0].name, "prompt_lookup");
  EXPECT_EQ(config.methods[0].spec.rule, "greedy");
  EXPECT_EQ(config.methods[0].spec.budget, kBudgetAuto);
}

TEST(BenchConfig, TheDefaultRuleFollowsTheTemperature) {
  EXPECT_EQ(config_of(kSmallest, {"sampling.temperature=0.8"}).methods[0].spec.rule, "coupled");
  EXPECT_EQ(config_of(kSmallest, {"sampling.temperature=1", "method.rule=rejection"})
                .methods[0]
                .spec.rule,
            "rejection");
  EXPECT_THAT(config_error(kSmallest, {"sampling.temperature=1", "method.rule=greedy"}),
              HasSubstr("greedy takes no notice of temperature 1"));
}

TEST(BenchConfig, UnknownKeysNameTheNearest) {
  EXPECT_EQ(config_error("[sampling]\ntemperatur = 0.8\n"),
            "c.toml:2: 'temperatur': unknown key; did you mean 'temperature'?");
  EXPECT_THAT(config_error("[samplin]\ntemperature = 0.8\n"),
              HasSubstr("c.toml:1: 'samplin': unknown table; did you mean 'sampling'?"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'prompt_lookup'\ndraft_lenght = 3\n"),
              HasSubstr("c.toml:3: 'draft_lenght': unknown key; did you mean 'draft_length'?"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'jacobi'\nrul = 'greedy'\n"),
              HasSubstr("did you mean 'rule'?"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'jacobbi'\n"), HasSubstr("'jacobi'"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'jacobi'\nrule = 'couple'\n"),
              HasSubstr("did you mean 'coupled'?"));
  EXPECT_THAT(config_error("seed = 1\n"), HasSubstr("c.toml:1: 'seed': stands before"));
  EXPECT_THAT(config_error(kSmallest, {"bench.sed=1"}),
              HasSubstr("--set bench.sed: 'sed': unknown key; did you mean 'seed'?"));
  EXPECT_THAT(config_error(kSmallest, {"bensh.seed=1"}), HasSubstr("did you mean 'bench'?"));
}

TEST(BenchConfig, ValuesOutOfRangeNameTheirLine) {
  EXPECT_THAT(config_error("[bench]\nmax_new_tokens = -5\n"),
              HasSubstr("c.toml:2: max_new_tokens: is -5; give a value in 1..1000000"));
  EXPECT_THAT(config_error("[bench]\nmemory = 'stale'\n"), HasSubstr("one of: fresh, carried"));
  EXPECT_THAT(config_error("[sampling]\ntemperature = nan\n"), HasSubstr("finite number"));
  EXPECT_THAT(config_error("[sampling]\nlogit_bias = ['x']\n"), HasSubstr("write \"ID:BIAS\""));
  EXPECT_THAT(config_error("[sampling]\nlogit_bias = ['1:nan']\n"), HasSubstr("ID:BIAS"));
}

TEST(BenchConfig, ABiasIsReadAsIdAndNumber) {
  const auto config = config_of(std::string(kSmallest) + "[sampling]\nlogit_bias = ['7:-1.5']\n");
  const auto bias = config.sampling.params().logit_bias;
  ASSERT_EQ(bias.size(), 1u);
  EXPECT_EQ(bias[0].first, 7);
  EXPECT_EQ(bias[0].second, -1.5f);
}

TEST(BenchConfig, MethodsAreCheckedBeforeAModelIsLoaded) {
  EXPECT_THAT(config_error(""), HasSubstr("no [[method]] table"));
  EXPECT_THAT(config_error("[[method]]\nname = 'x'\n"), HasSubstr("method: is missing"));
  EXPECT_THAT(config_error(std::string(kSmallest) + kSmallest),
              HasSubstr("c.toml:3: name: a second method is called 'prompt_lookup'"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'jacobi'\nname = 'baseline'\n"),
              HasSubstr("cannot be a label"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'jacobi'\nname = 'a|b'\n"),
              HasSubstr("cannot be a label"));
  EXPECT_THAT(config_error("[[model]]\n[[model]]\n"), HasSubstr("a second table of this name"));
}

TEST(BenchConfig, OverridesReachOneMethodOrAll) {
  const std::string two =
      "[[method]]\nname = 'a'\nmethod = 'prompt_lookup'\n"
      "[[method]]\nmethod = 'jacobi'\n";
  auto config = config_of(two, {"method.draft_length=5", "method.a.budget=2"});
  EXPECT_EQ(std::get<int64_t>(config.methods[0].spec.options[0].value), 5);
  EXPECT_EQ(std::get<int64_t>(config.methods[1].spec.options[0].value), 5);
  EXPECT_EQ(config.methods[0].spec.budget, 2);
  EXPECT_EQ(config.methods[1].spec.budget, kBudgetAuto);
  config = config_of(two, {"method.jacobi.draft_length=7"});
  EXPECT_EQ(std::get<int64_t>(config.methods[1].spec.options[0].value), 7);
  config = config_of(two, {"method.a.budget='all'"});
  EXPECT_EQ(config.methods[0].spec.budget, kBudgetAll);
  EXPECT_THAT(config_error(two, {"method.a.budget='some'"}),
              HasSubstr("give an integer or one of: auto | all"));
  EXPECT_THAT(config_error(two, {"method.b.budget=2"}), HasSubstr("no method is labelled 'b'"));
}

TEST(BenchConfig, UseTakesAMethodFileAndItsTableWins) {
  const auto folder = std::filesystem::temp_directory_path() / "coppice_config_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "m.toml") << "[method]\nmethod = 'prompt_lookup'\ndraft_length = 4\n"
                                      "max_ngram = 2\n";
  const auto config = make_bench_config(
      parse_toml("[[method]]\nuse = 'm.toml'\ndraft_length = 6\n", "c.toml"), {}, "c", folder);
  ASSERT_EQ(config.methods.size(), 1u);
  EXPECT_EQ(config.methods[0].spec.method, "prompt_lookup");
  ASSERT_EQ(config.methods[0].spec.options.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(config.methods[0].spec.options[0].value), 6);
  EXPECT_EQ(std::get<int64_t>(config.methods[0].spec.options[1].value), 2);
  EXPECT_THAT(config_error("[[method]]\nuse = 'nowhere.toml'\n"), HasSubstr("is no method file"));
  EXPECT_THAT(config_error("[[method]]\nuse = 3\n"), HasSubstr("is no method file"));
  std::filesystem::remove_all(folder);
}

TEST(BenchConfig, WhatIsDumpedReadsBackTheSame) {
  const auto config = config_of(
      "[model]\ndraft = 'qwen-0.5b'\n[bench]\nseed = 9\ncategories = ['qa', 'code']\n"
      "[sampling]\ntemperature = 0.7\nlogit_bias = ['7:-1.5']\n"
      "[[method]]\nmethod = 'draft_model'\ndraft_length = 2\n"
      "[[method]]\nmethod = 'prompt_lookup'\n");
  const auto json = config_to_json(dump_bench_config(config));
  EXPECT_EQ(json["method"][1]["draft_length"], 10);  // a default, written out

  const auto path = std::filesystem::temp_directory_path() / "coppice_config_test.json";
  std::ofstream(path) << nlohmann::ordered_json{{"config", json}};
  const auto again = read_bench_config(path, {});
  EXPECT_EQ(config_to_json(dump_bench_config(again)), json);
  std::filesystem::remove(path);
}

// A part's options and a rule's stand under their names, in files, overrides and manifests alike.
TEST(BenchConfig, PartsAndRulesHaveTheirOwnOptions) {
  const std::string text =
      "[[method]]\nmethod = 'cascade'\nrule = 'typical'\nmethods = ['jacobi', 'prompt_lookup']\n"
      "prompt_lookup.draft_length = 3\ntypical.delta = 0.5\n";
  const auto config = config_of(text, {"method.cascade.jacobi.draft_length=2"});
  const auto json = config_to_json(dump_bench_config(config));
  EXPECT_EQ(json["method"][0]["prompt_lookup.draft_length"], 3);
  EXPECT_EQ(json["method"][0]["prompt_lookup.max_ngram"], 3);
  EXPECT_EQ(json["method"][0]["jacobi.draft_length"], 2);
  EXPECT_EQ(json["method"][0]["typical.delta"], 0.5);
  EXPECT_EQ(json["method"][0]["typical.epsilon"], 0.09);
  ASSERT_EQ(config.methods[0].spec.rule_options.size(), 1u);
  EXPECT_EQ(config.methods[0].spec.rule_options[0].key, "delta");
  EXPECT_THAT(config_error(text + "prompt_lookup.draft_lenght = 3\n"),
              HasSubstr("did you mean 'prompt_lookup.draft_length'?"));
  EXPECT_THAT(config_error(text + "lookahead.window = 3\n"), HasSubstr("unknown key"));
  EXPECT_THAT(config_error(text + "threshold.gap = 3\n"), HasSubstr("unknown key"));
  EXPECT_THAT(config_error("[[method]]\nmethod = 'cascade'\nmethods = ['cascade']\n"),
              HasSubstr("drafts nothing of its own"));
}

TEST(BenchConfig, WhatIsNoManifestIsRefused) {
  const auto path = std::filesystem::temp_directory_path() / "coppice_config_test.json";
  for (const char* text : {"", "{", "[]", "{\"config\": 3}", "{\"config\": {\"bench\": 3}}",
                           "{\"config\": {\"bench\": {\"seed\": null}}}"}) {
    std::ofstream(path) << text;
    EXPECT_THROW(read_bench_config(path, {}), Error) << text;
  }
  std::filesystem::remove(path);
}

TEST(BenchConfig, EveryCommittedConfigReads) {
  const std::filesystem::path configs = std::filesystem::path(COPPICE_SOURCE_DIR) / "configs";
  const BenchConfig quickstart = read_bench_config(configs / "quickstart.toml", {});
  EXPECT_EQ(quickstart.bench.name, "quickstart");
  EXPECT_EQ(quickstart.bench.max_new_tokens, 64);
  EXPECT_LE(quickstart.methods.size(), 5u);  // and the baseline
  for (const auto& file : std::filesystem::directory_iterator(configs / "methods")) {
    const MethodConfig method = read_method(file.path().string(), 0.0f);
    EXPECT_EQ(method.name, file.path().stem().string());
    EXPECT_EQ(read_method(method.spec.method, 0.0f).spec.method, method.spec.method);
  }
  const auto lessons = std::filesystem::path(COPPICE_SOURCE_DIR) / "experiments" / "lessons";
  for (const auto& file : std::filesystem::directory_iterator(lessons)) {
    if (file.path().extension() != ".toml") continue;
    EXPECT_FALSE(read_bench_config(file.path(), {}).methods.empty()) << file.path();
  }
}

}  // namespace
}  // namespace coppice
