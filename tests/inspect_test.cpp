// `coppice inspect`'s page, lists and JSON, of small images with known numbers.
#include "experiments/inspect.h"

#include <gmock/gmock.h>

#include "tests/test_files.h"
#include "tests/tiny_gguf.h"

namespace coppice {
namespace {

using test::Bytes;
using test::GgufImage;
using test::tiny_model;
using testing::HasSubstr;

GgufImage described_image() {
  GgufImage image = tiny_model("gemma3", {.layers = 7});
  image.key("tokenizer.ggml.model", "llama")
      .key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c", "d", "e"})
      .key("tokenizer.chat_template", "{{ bos }}\nand more");
  image.tensor("output.weight", DType::q8_0, {64, 40});
  return image;
}

TEST(Inspect, PageIsAlignedAndComplete) {
  const Bytes bytes = described_image().bytes();
  EXPECT_EQ(describe_model(GgufFile("tiny.gguf", bytes)), R"(Tiny gemma3
  file          tiny.gguf, 887.7 kB, GGUF version 3
  architecture  gemma3
  runs          yes
  parameters    222.2 k in 94 tensors, 31.73 bits each
  layers        7
                6 see a window of 8, 1 see all
  width         64, feed-forward 96
  attention     4 heads, 2 for keys and values, 16 values each
  rotary bases  10000, 10000
  context       128 positions
  vocabulary    40 rows, output of its own
  tokenizer     llama, 5 tokens
  chat template 18 bytes, '{{ bos }}'

  type      tensors   parameters       bytes    bits   share
  F32            93      219.7 k    878.7 kB   32.00   99.7%
  Q8_0            1       2.56 k     2.72 kB    8.50    0.3%
)");
}

TEST(Inspect, ModelsThatDoNotRunAreDescribedWithTheReason) {
  GgufImage image = described_image();
  image.key("general.architecture", "mam\nba").key("general.name", "\xff\x1b[31m");
  const Bytes bytes = image.bytes();
  const GgufFile file("tiny.gguf", bytes);
  const std::string page = describe_model(file);
  EXPECT_THAT(page, testing::StartsWith("\\xff\\x1b[31m\n"));
  EXPECT_THAT(page, HasSubstr("  architecture  mam\\x0aba\n"));
  EXPECT_THAT(page, HasSubstr("  runs          no: architecture 'mam\\x0aba' is not supported"));
  const nlohmann::json json = model_json(file);
  EXPECT_TRUE(json["shape"].is_null());
  EXPECT_THAT(json["refusal"].get<std::string>(), testing::StartsWith("architecture"));
  EXPECT_EQ(json["name"], "\uFFFD\x1b[31m");
  EXPECT_FALSE(json.dump().empty());  // throws on text that is not UTF-8
}

TEST(Inspect, FileWithoutTensorsIsDescribed) {
  const Bytes bytes = GgufImage().bytes();
  const std::string page = describe_model(GgufFile("empty.gguf", bytes));
  EXPECT_THAT(page, testing::StartsWith("unnamed model\n"));
  EXPECT_THAT(page, HasSubstr("  runs          no: key 'general.architecture' is missing"));
  EXPECT_THAT(page, HasSubstr("  parameters    0 in 0 tensors, 0.00 bits each\n"));
  EXPECT_THAT(page, HasSubstr("  tokenizer     none\n"));
}

TEST(Inspect, ListsHaveALineEach) {
  GgufImage image;
  image.key("a.long.key", "two\nlines").key("b", std::vector<int32_t>{1, 2, 3, 4, 5});
  image.key("c", 1e-5f).key("d", std::vector<bool>{true});
  image.tensor("first", DType::q4_1, {64, 3, 2}).tensor("second.one", DType::f32, {5});
  const Bytes bytes = image.bytes();
  const GgufFile file("lists.gguf", bytes);
  EXPECT_EQ(list_keys(file), R"(a.long.key  'two\x0alines'
b           [1, 2, 3, 4, ...] (5 values)
c           1e-05
d           [true]
)");
  EXPECT_EQ(list_tensors(file), R"(first       Q4_1         2 x 3 x 64           240
second.one  F32                   5            20
)");
}

TEST(Inspect, JsonHoldsTheNumbers) {
  const Bytes bytes = described_image().bytes();
  const nlohmann::json json = model_json(GgufFile("tiny.gguf", bytes));
  EXPECT_EQ(json["architecture"], "gemma3");
  EXPECT_EQ(json["bytes"], bytes.size());
  EXPECT_TRUE(json["refusal"].is_null());
  EXPECT_EQ(json["shape"]["windows"], (std::vector<int>{8, 8, 8, 8, 8, 0, 8}));
  EXPECT_EQ(json["shape"]["tied_output"], false);
  EXPECT_EQ(json["tokenizer"]["tokens"], 5);
  EXPECT_EQ(json["chat_template"], "{{ bos }}\nand more");
  EXPECT_EQ(json["types"][1]["type"], "Q8_0");
  EXPECT_EQ(json["types"][1]["bytes"], 64 * 40 / 32 * 34);
  EXPECT_EQ(json["tensors"].size(), 2u + 7 * 13 + 1);
  int64_t parameters = 0;
  for (const nlohmann::json& tensor : json["tensors"]) {
    int64_t values = 1;
    for (const nlohmann::json& dim : tensor["shape"]) values *= dim.get<int64_t>();
    parameters += values;
  }
  EXPECT_EQ(json["parameters"], parameters);
}

TEST(Inspect, RealModelIsDescribed) {
  REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const std::string page = describe_model(GgufFile(path));
  EXPECT_THAT(page, HasSubstr("  parameters    134.5 M in 272 tensors, 5.74 bits each\n"));
  EXPECT_THAT(page, HasSubstr("  tokenizer     gpt2 / smollm, 49152 tokens\n"));
  EXPECT_THAT(page, HasSubstr("  Q4_1          210      106.2 M     66.4 MB    5.00   68.7%\n"));
}

}  // namespace
}  // namespace coppice
