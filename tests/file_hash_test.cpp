// SHA-256 against FIPS 180-4's examples and the pinned model.
#include "core/file_hash.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

#include "kernels/base/error.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

std::string hash_of_text(const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("coppice_hash_{}", ::getpid());
  std::ofstream(path, std::ios::binary) << text;
  const std::string hash = sha256_of(path);
  std::filesystem::remove(path);
  return hash;
}

TEST(FileHash, MeetsThePublishedExamples) {
  EXPECT_EQ(hash_of_text(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of_text("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of_text(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(FileHash, BlocksOfTheStreamJoin) {  // value from Python's hashlib
  EXPECT_EQ(hash_of_text(std::string(3'000'000, 'a')),
            "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
}

TEST(FileHash, WhatCannotBeReadIsAnError) {
  EXPECT_THROW(sha256_of("/nonexistent"), Error);
  EXPECT_THROW(sha256_of("/tmp"), Failure);
}

}  // namespace
}  // namespace coppice
