// An empty folder that lives as long as the object, and small things around errors and files.
//
//   const Scratch scratch;
//   std::ofstream(scratch / "a.toml") << "...";
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace coppice::test {

class Scratch {
 public:
  Scratch() : path_(std::filesystem::temp_directory_path()) {
    static int number = 0;
    path_ /= fmt::format("coppice-test-{}-{}", ::getpid(), ++number);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  Scratch(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

/// The same, which must be one line.
template <class Call>
std::string error_line_of(Call&& call) {
  const std::string line = error_of(call);
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  return line;
}

}  // namespace coppice::test
