// The GGUF reader believes nothing: every field is set to hostile values, every prefix of a file
// and thousands of flipped bytes give one Error line and never a crash.
#include "core/gguf.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>

#include "core/quote.h"
#include "kernels/base/error.h"
#include "tests/gguf_writer.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

using test::Bytes;
using test::GgufImage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

GgufImage small_image() {
  GgufImage image;
  image.key("general.architecture", "llama")
      .key("n", uint32_t{7})
      .key("x", 0.5f)
      .key("flag", true)
      .key("words", std::vector<std::string>{"one", "", "three"})
      .key("bits", std::vector<bool>{true, false, true});
  image.tensor("a", {32, 2}, std::vector<float>(64, 1.5f)).tensor("b", DType::q4_0, {64, 3});
  return image;
}

/// The message of the Error that reading the image gives; fails the test when it gives none.
std::string refusal(const Bytes& bytes) {
  try {
    GgufFile file("test.gguf", bytes);
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_THAT(message, testing::StartsWith("test.gguf: "));
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  ADD_FAILURE() << "the image was accepted";
  return "";
}
std::string refusal(const GgufImage& image) {
  return refusal(image.bytes());
}

TEST(Gguf, ReadsWhatTheWriterWrote) {
  const Bytes bytes = small_image().bytes();
  const GgufFile file("test.gguf", bytes);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.bytes(), bytes.size());
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("n", 0, 10), 7);
  EXPECT_EQ(file.real("x"), 0.5);
  EXPECT_TRUE(file.boolean_or("flag", false));
  EXPECT_THAT(file.texts("words"), ElementsAre("one", "", "three"));
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor& a = file.tensor("a");
  EXPECT_THAT(a.shape, ElementsAre(32, 2));
  EXPECT_EQ(a.view.rows, 2);
  EXPECT_EQ(a.view.cols, 32);
  float value = 0.0f;
  std::memcpy(&value, a.view.row(1) + 31 * sizeof(float), sizeof value);
  EXPECT_EQ(value, 1.5f);
  EXPECT_EQ(file.tensor("b").view.bytes(), 3u * 2 * 18);
  EXPECT_EQ(file.find_tensor("c"), nullptr);
  EXPECT_EQ(file.metadata()[1].first, "n");
}

TEST(Gguf, ReadsEveryValueTypeAlone) {
  GgufImage image;
  image.key("u8", uint8_t{255}).key("i8", int8_t{-128}).key("u16", uint16_t{65535});
  image.key("i16", int16_t{-32768}).key("u32", uint32_t{4294967295u}).key("i32", int32_t{-2});
  image.key("u64", uint64_t{1} << 63).key("i64", int64_t{-3}).key("f64", 0.1);
  image.key("i8s", std::vector<int8_t>{-1, 2}).key("u16s", std::vector<uint16_t>{65535});
  image.key("f32s", std::vector<float>{-1.5f, 2.0f}).key("none", std::vector<uint32_t>{});
  const Bytes bytes = image.bytes();
  const GgufFile file("test.gguf", bytes);
  EXPECT_EQ(file.integer("u8", 0, 255), 255);
  EXPECT_EQ(file.integer("i8", -128, 0), -128);
  EXPECT_EQ(file.integer("u16", 0, 65535), 65535);
  EXPECT_EQ(file.integer("i16", -32768, 0), -32768);
  EXPECT_EQ(file.integer("u32", 0, 4294967295), 4294967295);
  EXPECT_EQ(file.integer("i32", -2, -2), -2);
  EXPECT_EQ(file.integer("i64", -5, 5), -3);
  EXPECT_EQ(file.real("f64"), 0.1);
  EXPECT_EQ(std::get<uint64_t>(*file.find("u64")), uint64_t{1} << 63);
  EXPECT_THROW(file.integer("u64", INT64_MIN, INT64_MAX), Error);
  EXPECT_THAT(file.integers("i8s"), ElementsAre(-1, 2));
  EXPECT_THAT(file.integers("u16s"), ElementsAre(65535));
  EXPECT_THAT(file.reals("f32s"), ElementsAre(-1.5f, 2.0f));
  EXPECT_TRUE(file.integers("none").empty());
}

TEST(Gguf, Version2IsReadAsVersion3) {
  GgufImage image = small_image();
  image.version = 2;
  const Bytes bytes = image.bytes();
  EXPECT_EQ(GgufFile("test.gguf", bytes).integer("n", 7, 7), 7);
}

TEST(Gguf, HeaderIsChecked) {
  GgufImage image = small_image();
  image.magic = "\xffggm";
  EXPECT_THAT(refusal(image), HasSubstr("begins with '\\xffggm'; expected 'GGUF'"));
  image = small_image();
  for (const uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    image.version = version;
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("version is {}; expected 2 or 3", version)));
  }
  image.version = 0x03000000;
  EXPECT_THAT(refusal(image), HasSubstr("big-endian"));
}

// C091: counts and lengths are bounded by the rest of the file before anything is allocated.
TEST(Gguf, HugeCountsAreRefused) {
  for (const uint64_t count : {uint64_t{1} << 30, uint64_t{1} << 63, ~uint64_t{0}}) {
    GgufImage image = small_image();
    image.tensor_count = count;
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("tensor count: the count is {}", count)));
    image = small_image();
    image.key_count = count;
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("key count: the count is {}", count)));
    for (const uint32_t element : {0u, 6u, 7u, 8u, 12u}) {
      image = small_image();
      Bytes array;
      test::put(array, element);
      test::put(array, count);
      image.keys[1] = {"n", 9, array};
      EXPECT_THAT(refusal(image), HasSubstr(fmt::format("key 'n': the count is {}", count)));
    }
    image = small_image();
    Bytes text;
    test::put(text, count);
    image.keys[1] = {"n", 8, text};
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("key 'n': the text has {} bytes", count)));
  }
}

TEST(Gguf, NamesAreKeptWholeOrRefused) {  // C097
  for (const size_t length : {63, 64, 65, 300, 65535}) {
    GgufImage image = small_image();
    const std::string name(length, 't');
    image.tensor(name, DType::f32, {8});
    image.key(name, uint8_t{1});
    const Bytes bytes = image.bytes();
    const GgufFile file("test.gguf", bytes);
    EXPECT_NE(file.find_tensor(name), nullptr);
    EXPECT_EQ(file.find_tensor(name.substr(1)), nullptr);
    EXPECT_EQ(file.integer(name, 1, 1), 1);
  }
  GgufImage image = small_image();
  image.tensors[0].name = std::string(65536, 't');
  EXPECT_THAT(refusal(image), HasSubstr("tensor 1 of 2: the text has 65536 bytes"));
  image.tensors[0].name = "";
  EXPECT_THAT(refusal(image), HasSubstr("name of tensor 1 of 2: the name is empty"));
  image.keys[2].name = "";
  EXPECT_THAT(refusal(image), HasSubstr("name of key 3 of 6: the name is empty"));
}

TEST(Gguf, DuplicatesAreRefused) {  // C095
  GgufImage image = small_image();
  image.tensors[1].name = "a";
  EXPECT_THAT(refusal(image), HasSubstr("tensor 'a': the tensor occurs twice"));
  image = small_image();
  image.keys.push_back(image.keys[0]);
  EXPECT_THAT(refusal(image), HasSubstr("key 'general.architecture': the key occurs twice"));
}

TEST(Gguf, BytesThatAreNotTextAreEscapedInMessages) {
  GgufImage image = small_image();
  image.keys[0].name = "bad\xff\n\xe2\x80";
  image.keys[0].type = 99;
  EXPECT_THAT(refusal(image), HasSubstr("key 'bad\\xff\\x0a\\xe2\\x80': the value's type is 99"));
  EXPECT_EQ(quote("a\\b\x7f"), "'a\\\\b\\x7f'");
  EXPECT_EQ(quote(std::string(60, 'a') + std::string(1000, 'b') + std::string(20, 'c')),
            "'" + std::string(60, 'a') + "..." + std::string(20, 'c') + "'");
}

TEST(Gguf, ValueTypesAreChecked) {
  GgufImage image = small_image();
  for (const uint32_t type : {13u, 255u, 0xffffffffu}) {
    image.keys[1].type = type;
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("key 'n': the value's type is {}", type)));
  }
  image = small_image();
  Bytes nested;
  test::put(nested, uint32_t{9});
  test::put(nested, uint64_t{1});
  image.keys[1] = {"n", 9, nested};
  EXPECT_THAT(refusal(image), HasSubstr("key 'n': an array of arrays"));
  image = small_image();
  image.keys[3].value[0] = std::byte{2};
  EXPECT_THAT(refusal(image), HasSubstr("key 'flag': the boolean is 2"));
}

// C086, C092
TEST(Gguf, AlignmentIsHonouredOrRefused) {
  for (const uint32_t alignment : {8u, 64u, 4096u, 65536u}) {
    GgufImage image = small_image();
    image.alignment = alignment;
    image.key("general.alignment", alignment);
    const Bytes bytes = image.bytes();
    const GgufFile file("test.gguf", bytes);
    EXPECT_EQ(file.alignment(), alignment);
    float value = 0.0f;
    std::memcpy(&value, file.tensor("a").view.data, sizeof value);
    EXPECT_EQ(value, 1.5f);
  }
  for (const int64_t alignment : {int64_t{0}, int64_t{-1}, int64_t{3}, int64_t{4}, int64_t{24},
                                  int64_t{1} << 30, INT64_MIN}) {
    GgufImage image = small_image();
    image.key("general.alignment", alignment);
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("'general.alignment' is {}", alignment)));
  }
  GgufImage image = small_image();
  image.key("general.alignment", "32");
  EXPECT_THAT(refusal(image), HasSubstr("'general.alignment' is a text; expected an integer"));
}

// C089: the product of dimensions is checked.
TEST(Gguf, DimensionsAreChecked) {
  const uint64_t most = ~uint64_t{0};
  const std::vector<std::vector<uint64_t>> shapes = {
      {0},
      {32, 0},
      {uint64_t{1} << 63},
      {most, most},
      {32, most},
      {1ull << 32, 1ull << 32},
      {32, 1ull << 62, 4},
      {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}};
  for (const auto& shape : shapes) {
    GgufImage image = small_image();
    image.tensors[0].shape = shape;
    EXPECT_THAT(refusal(image), HasSubstr("tensor 'a': dimension"))
        << testing::PrintToString(shape);
  }
  for (const std::vector<uint64_t>& shape :
       {std::vector<uint64_t>{(uint64_t{1} << 42) + 1}, {32, uint64_t{1} << 57}, {32, 1000}}) {
    GgufImage image = small_image();
    image.tensors[0].shape = shape;
    EXPECT_THAT(refusal(image), HasSubstr("tensor 'a' ends past the file's end"));
  }
  GgufImage image = small_image();
  for (const uint32_t n_dims : {0u, 5u, 0xffffffffu}) {
    image.tensors[0].n_dims = n_dims;
    EXPECT_THAT(refusal(image), HasSubstr(fmt::format("tensor 'a': {} dimensions", n_dims)));
  }
}

// C098
TEST(Gguf, TensorTypesAreChecked) {
  GgufImage image = small_image();
  const std::pair<uint32_t, std::string> types[] = {{42, "type 42 is"},
                                                    {36, "type 36 (IQ4_NL_4_4)"},
                                                    {0xffffffffu, "type 4294967295 is"},
                                                    {10, "type 10 (Q2_K)"}};
  for (const auto& [type, message] : types) {
    image.tensors[1].type = type;
    EXPECT_THAT(refusal(image),
                AllOf(HasSubstr("tensor 'b': " + message), HasSubstr("expected F32")));
  }
  image = small_image();
  image.tensors[1].shape = {100, 3};
  EXPECT_THAT(
      refusal(image),
      HasSubstr("tensor 'b': rows have 100 values; expected a multiple of 32, the block of Q4_0"));
}

TEST(Gguf, OffsetsAreChecked) {
  GgufImage image = small_image();
  image.tensors[1].offset = 257;
  EXPECT_THAT(refusal(image),
              HasSubstr("tensor 'b': its offset is 257; expected a multiple of 32"));
  for (const uint64_t offset : {uint64_t{512}, uint64_t{1} << 40, ~uint64_t{31}}) {
    image.tensors[1].offset = offset;
    EXPECT_THAT(refusal(image), HasSubstr("tensor 'b' ends past the file's end"));
  }
  for (const uint64_t offset : {0, 32, 224}) {
    image.tensors[1].offset = offset;
    EXPECT_THAT(refusal(image), HasSubstr("tensors 'a' and 'b' overlap"));
  }
}

// C103: bytes after the last tensor and gaps between tensors are allowed and never read.
TEST(Gguf, TrailingBytesAndGapsAreAllowed) {
  const Bytes whole = small_image().bytes();
  for (const size_t extra : {1, 31, 4096}) {
    Bytes bytes = whole;
    bytes.resize(bytes.size() + extra, std::byte{0xff});
    EXPECT_EQ(GgufFile("test.gguf", bytes).tensor("b").view.bytes(), 108u);
  }
  GgufImage image = small_image();
  image.tensors[1].offset = 320;
  Bytes bytes = image.bytes();
  bytes.resize(bytes.size() + 64);
  EXPECT_EQ(GgufFile("test.gguf", bytes).tensors().size(), 2u);
}

TEST(Gguf, LookUpsNameTheKeyAndWhatWasExpected) {
  GgufImage image = small_image();
  image.key("nan", std::nan("")).key("infinite", std::vector<float>{1.0f, INFINITY});
  const Bytes bytes = image.bytes();
  const GgufFile file("test.gguf", bytes);
  const auto message = [](const std::function<void()>& look_up) -> std::string {
    try {
      look_up();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message([&] { file.integer("n", 8, 9); }),
            "test.gguf: key 'n' is 7; expected an integer from 8 to 9");
  EXPECT_EQ(message([&] { file.integer("x", 8, 8); }),
            "test.gguf: key 'x' is a real number; expected 8");
  EXPECT_EQ(message([&] { file.integer("m", 8, 9); }),
            "test.gguf: key 'm' is missing; expected an integer from 8 to 9");
  EXPECT_EQ(message([&] { file.real("nan"); }),
            "test.gguf: key 'nan' is nan; expected a finite number");
  EXPECT_EQ(message([&] { file.real("n"); }),
            "test.gguf: key 'n' is an unsigned integer; expected a real number");
  EXPECT_EQ(message([&] { file.boolean_or("n", true); }),
            "test.gguf: key 'n' is an unsigned integer; expected a boolean");
  EXPECT_EQ(message([&] { file.text("words"); }),
            "test.gguf: key 'words' is an array of texts; expected a text");
  EXPECT_EQ(message([&] { file.reals("words"); }),
            "test.gguf: key 'words' is an array of texts; expected an array of real numbers");
  EXPECT_EQ(message([&] { file.reals("infinite"); }),
            "test.gguf: key 'infinite' holds inf; expected finite numbers");
  EXPECT_EQ(message([&] { file.integers("bits"); }),
            "test.gguf: key 'bits' is an array of booleans; expected an array of integers");
  EXPECT_EQ(message([&] { file.texts("bits"); }),
            "test.gguf: key 'bits' is an array of booleans; expected an array of texts");
  EXPECT_EQ(message([&] { file.tensor("c"); }), "test.gguf: tensor 'c' is missing");
  EXPECT_EQ(file.integer_or("m", 8, 9, 3), 3);
  EXPECT_EQ(file.real_or("m", 0.25), 0.25);
  EXPECT_FALSE(file.boolean_or("m", false));
}

TEST(Gguf, EveryTruncationIsRefused) {
  const Bytes whole = small_image().bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    // A copy of its own, so that a read past the end is one past an allocation.
    const Bytes prefix(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    refusal(prefix);
  }
}

/// Touches every byte that the file's views promise.
size_t sum_of_tensors(const GgufFile& file) {
  size_t sum = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    for (size_t i = 0; i < tensor.view.bytes(); ++i)
      sum += std::to_integer<size_t>(tensor.view.data[i]);
  }
  return sum;
}

TEST(Gguf, FlippedBytesNeverCrash) {
  const Bytes whole = small_image().bytes();
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = whole;
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try {
      sum_of_tensors(GgufFile("test.gguf", bytes));
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(accepted, 0);  // flips in the data are not the reader's to find
  EXPECT_LT(accepted, 20000);
}

class GgufOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("coppice_gguf_{}", ::getpid());
    const Bytes bytes = small_image().bytes();
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(GgufOnDisk, IsMappedAndOutlivesItsName) {
  GgufFile first(path_);
  std::filesystem::remove(path_);
  const GgufFile file = std::move(first);
  EXPECT_EQ(file.tensor("a").view.rows, 2);
  EXPECT_GT(sum_of_tensors(file), 0u);
}

TEST_F(GgufOnDisk, CutBeforeOpeningIsRefused) {  // C100
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_THROW(GgufFile{path_}, Error);
  std::filesystem::resize_file(path_, 0);
  EXPECT_THROW(GgufFile{path_}, Error);
}

TEST_F(GgufOnDisk, CutAfterOpeningIsNoticed) {
  const GgufFile file(path_);
  file.tensor("a");
  std::filesystem::resize_file(path_, 40);
  EXPECT_THROW(file.tensor("a"), Failure);
}

TEST(Gguf, WhatIsNoFileIsRefused) {
  for (const std::filesystem::path path : {"/nonexistent/model.gguf", "/tmp", "/dev/zero"}) {
    EXPECT_THROW(GgufFile{path}, Error) << path;
  }
}

TEST(Gguf, RealModelIsRead) {
  REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
  const GgufFile file(path);
  EXPECT_EQ(file.tensors().size(), 272u);
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens").size(), 49152u);
  EXPECT_EQ(file.tensor("token_embd.weight").view.type, DType::q8_0);
  EXPECT_EQ(file.tensor("blk.0.ffn_up.weight").view.type, DType::q4_1);
}

}  // namespace
}  // namespace coppice
