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

}  // namespace
}  // namespace coppice
