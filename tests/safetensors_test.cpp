// The safetensors reader against what a writer must give it and against every damage that public
// bug reports name; and the writer against the reader.
#include "core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "kernels/base/blocks.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> image(const std::string& header, size_t data) {
  std::vector<std::byte> out(8 + header.size() + data);
  const uint64_t size = header.size();
  std::memcpy(out.data(), &size, 8);
  std::memcpy(out.data() + 8, header.data(), header.size());
  for (size_t i = 0; i < data; ++i) out[8 + header.size() + i] = static_cast<std::byte>(i);
  return out;
}

std::string refusal(std::span<const std::byte> bytes) {
  try {
    SafetensorsFile("made-up", bytes);
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string refusal(const std::string& header, size_t data = 8) {
  return refusal(image(header, data));
}

TEST(Safetensors, ReadsTensorsInAnyOrderAndTheirMetadata) {
  const auto bytes =
      image(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"k":"v"},)"
            R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
            R"("none":{"dtype":"I64","shape":[0,7],"data_offsets":[4,4]},)"
            R"("one":{"dtype":"I32","shape":[],"data_offsets":[12,16]}}   )",
            16);
  const SafetensorsFile file("made-up", bytes);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.matrix("a", 1, 2).type, DType::bf16);
  EXPECT_EQ(file.vector("b", 2).size(), 2u);
  EXPECT_EQ(file.tensor("one").bytes.size(), 4u);
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THROW(file.tensor("c"), Error);
  EXPECT_THROW(file.matrix("a", 2, 1), Error);
  EXPECT_THROW(file.integers("b", 2), Error);
  EXPECT_THROW(file.matrix("none", 0, 7), Error);  // I64 is no weight
}

// C100, C101, C103, C095 and the format's own rules.
TEST(Safetensors, RefusesDamageByName) {
  const std::string one = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(refusal(one), "accepted");
  EXPECT_THAT(refusal(one, 7), HasSubstr("'a' ends past the file's end"));
  EXPECT_THAT(refusal(one, 9), HasSubstr("1 bytes behind the last tensor"));
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  EXPECT_THAT(refusal(entry("\"F32\"", "[1000,1000]", "[0,8]")), HasSubstr("need 4000000 bytes"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[2]", "[8,0]")), HasSubstr("stands at 8 to 0"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[2]", "[8]")), HasSubstr("1 data_offsets"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[2]", "[0,4,8]")), HasSubstr("3 data_offsets"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[2]", "[-8,0]")), HasSubstr("an offset is '-8'"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[2.5]", "[0,8]")), HasSubstr("a dimension is '2.5'"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[4611686018427387905,2]", "[0,8]")),
              HasSubstr("below 2^64 bytes"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[9223372036854775808]", "[0,8]")),
              HasSubstr("below 2^64 bytes"));
  EXPECT_THAT(refusal(entry("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]")), HasSubstr("9 dimensions"));
  EXPECT_THAT(refusal(entry("\"Q4\"", "[2]", "[0,8]")), HasSubstr("dtype"));
  EXPECT_THAT(refusal(entry("7", "[2]", "[0,8]")), HasSubstr("dtype"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})"), HasSubstr("shape"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
              HasSubstr("'a' occurs twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})"),
              HasSubstr("neither gaps nor overlaps"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})"),
              HasSubstr("neither gaps nor overlaps"));
  EXPECT_THAT(refusal("{\"a\xff\":1}"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{\"a\":7}"), HasSubstr("is no object"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":7}})", 0), HasSubstr("is no text"));
  EXPECT_THAT(refusal(std::string(2000, '[')), HasSubstr("nested too deeply"));
  EXPECT_THAT(refusal(std::vector<std::byte>(7)), HasSubstr("7 bytes"));
  EXPECT_THAT(refusal(std::vector<std::byte>(64, std::byte{0x7f})), HasSubstr("ends before"));
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const auto path = std::filesystem::path(testing::TempDir()) / "written.safetensors";
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::vector<int64_t> ids = {5, -7};
  std::vector<std::byte> blocks(2 * sizeof(BlockQ8_0));
  write_safetensors(path,
                    std::vector<SafeTensor>{
                        {"w", "F32", {2, 3}, std::as_bytes(std::span(values))},
                        {"ids", "I64", {2}, std::as_bytes(std::span(ids))},
                        {"q", "U8", {2, 34}, blocks},
                        {"q4", "U8", {2, 20}, std::span(blocks).first(40)},
                    },
                    {{"note", "\"quoted\""}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("note"), "\"quoted\"");
  EXPECT_THAT(file.integers("ids", 2), ElementsAre(5, -7));
  const TensorView w = file.matrix("w", 2, 3);
  std::vector<float> row(3);
  dequantise_row(w, 1, row);
  EXPECT_THAT(row, ElementsAre(4.0f, 5.0f, 6.0f));
  EXPECT_EQ(file.matrix("q", 2, 32).type, DType::q8_0);
  EXPECT_THROW(file.matrix("q", 2, 64), Error);
  EXPECT_EQ(file.matrix("q4", 2, 32).type, DType::q4_1);
  EXPECT_THROW(file.matrix("q4", 1, 64), Error);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  EXPECT_THROW(write_safetensors("absent-folder/x.safetensors", {}, {}), Failure);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(file.tensor("w"), Failure);  // cut while it was open
  EXPECT_THROW(SafetensorsFile{path}, Error);
  EXPECT_THROW(SafetensorsFile{std::filesystem::path("absent")}, Error);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace coppice
