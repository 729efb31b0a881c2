// The tokenizers of real models against the ids their own tokenizers give (tests/golden, from
// transformers), and against cases that those values do not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/tokenizer.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<int32_t>;

constexpr const char* kSmolLm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kQwen = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
constexpr const char* kGemma = "gemma-3-270m-q4_k_m.gguf";

Tokenizer load(const std::filesystem::path& path) {
  return Tokenizer(read_vocabulary(GgufFile(path)));
}

void meets_golden(const Tokenizer& tokenizer, const std::string& name) {
  const auto golden = nlohmann::json::parse(std::ifstream(test::golden_file(name)));
  EXPECT_EQ(golden["tokenizer"].size(), 16u);
  for (const auto& item : golden["tokenizer"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, SpecialText::parsed), item["ids"].get<Ids>()) << text;
  }
  EXPECT_FALSE(golden["generation"].empty());
  for (const auto& item : golden["generation"]) {
    const auto text = item["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode_prompt(text), item["prompt_ids"].get<Ids>()) << text;
  }
}

TEST(TokenizerGolden, SmolLm2) {
  REQUIRE_MODEL(path, kSmolLm2);
  meets_golden(load(path), "smollm2-135m-instruct.json");
}

TEST(TokenizerGolden, Qwen2) {
  REQUIRE_MODEL(path, kQwen);
  meets_golden(load(path), "qwen2.5-coder-0.5b-instruct.json");
}

TEST(TokenizerGolden, Gemma3) {
  REQUIRE_MODEL(path, kGemma);
  meets_golden(load(path), "gemma-3-270m.json");
}

// What the golden values do not reach: white space before digits, white space outside of ASCII,
// what looks like it, NUL. The ids are those of the `tokenizers` package (smollm: digits split,
// then its byte level; qwen2: the model's own pattern) and of SentencePiece.
struct Case {
  std::string text;
  Ids ids;
};

void meets_cases(const Tokenizer& tokenizer, const std::vector<Case>& cases) {
  for (const Case& item : cases) {
    EXPECT_EQ(tokenizer.encode(item.text, SpecialText::literal), item.ids) << item.text;
    EXPECT_EQ(tokenizer.decode(item.ids), item.text);
  }
}

TEST(TokenizerCases, SmolLm2) {
  REQUIRE_MODEL(path, kSmolLm2);
  const Tokenizer tokenizer = load(path);
  meets_cases(tokenizer,
              {{"x\n\n2", {104, 1116, 34}},
               {"a  7", {81, 256, 39}},
               {"\u2029 \ua000", {321, 119, 35792, 218, 218}},
               {"a\u180e\u180e b", {81, 172, 250, 232, 172, 250, 232, 278}},
               {"a\u0085\u0085 b", {81, 141, 223, 141, 223, 278}},
               {std::string("n\0ul", 4), {94, 190, 336}},
               {" 'Twas  9\u00bd\t\u2167", {637, 68, 10591, 256, 41, 16738, 197, 173, 223, 117}}});
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(2));
}

TEST(TokenizerCases, Qwen2) {
  REQUIRE_MODEL(path, kQwen);
  const Tokenizer tokenizer = load(path);
  meets_cases(tokenizer, {{"x\n\n2", {87, 271, 17}},
                          {"a  7", {64, 220, 220, 22}},
                          {"\u2029 \ua000", {378, 102, 8620, 222, 222}},
                          {"a\u180e\u180e b", {64, 123970, 236, 123970, 236, 293}},
                          {"a\u0085\u0085 b", {64, 126, 227, 126, 227, 293}},
                          {std::string("n\0ul", 4), {77, 188, 360}},
                          {" 'Twas  9\u00bd\t\u2167",
                           {364, 51, 16123, 220, 220, 24, 26062, 197, 70467, 100}}});
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(151645));
  EXPECT_EQ(tokenizer.piece(151665), "");  // "[PAD151665]", which is unused
}

TEST(TokenizerCases, Gemma3) {
  REQUIRE_MODEL(path, kGemma);
  const Tokenizer tokenizer = load(path);
  meets_cases(tokenizer, {{"x\n\n2", {236781, 108, 236778}},
                          {"a  7", {236746, 138, 236832}},
                          {"\u2029 \ua000", {464, 366, 407, 236743, 472, 366, 366}},
                          {"a\u180e\u180e b", {236746, 463, 398, 380, 463, 398, 380, 518}},
                          {"a\u0085\u0085 b", {236746, 432, 371, 432, 371, 518}},
                          {std::string("n\0ul", 4), {236749, 238, 575}},
                          {" 'Twas  9\u00bd\t\u2167",
                           {756, 236774, 9849, 138, 236819, 238612, 255968, 251329}}});
  EXPECT_THAT(tokenizer.stop_ids(), ElementsAre(1, 106));
}

}  // namespace
}  // namespace coppice
