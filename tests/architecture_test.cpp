// Reads the source files themselves: rooms include downwards only, third-party headers stay where
// they belong, files stay short and open with a comment. Source: the rooms' order in README.md.
//
//   violations("core/model.cpp", text)  ->  {"core/model.cpp includes experiments/..."}
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Each room may include itself and those before it.
constexpr std::array<std::string_view, 6> kRooms = {"kernels",  "core",        "decoding",
                                                    "drafters", "experiments", "tests"};
constexpr int kMostLines = 450;  // the aim is 400

/// Index in kRooms of the path's first folder, kRooms.size() for any other.
size_t room_of(std::string_view path) {
  return std::find(kRooms.begin(), kRooms.end(), path.substr(0, path.find('/'))) - kRooms.begin();
}

std::string_view stem_of(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return path.substr(0, path.find('.'));
}

bool is_cuda_header(const std::string& header) {
  static const std::regex pattern("cu[A-Za-z_0-9]*\\.h|(cub|thrust|cuda|cooperative_groups).*");
  return std::regex_match(header, pattern);
}

/// What is wrong with one #include in the file at `path` (relative to the checkout), or "".
std::string wrong_include(std::string_view path, const std::string& header) {
  const size_t room = room_of(path);
  const size_t target = header.find('/') == std::string::npos ? kRooms.size() : room_of(header);
  if (target < kRooms.size() && target > room) return "an arrow that points up";
  const bool same_drafter = stem_of(header) == stem_of(path) || stem_of(path) == "methods";
  if (kRooms[room] == "drafters" && header.starts_with("drafters/") && !same_drafter) {
    return "one drafter must not know another";
  }
  if (header.starts_with("kernels/cuda/") && room > 0 && kRooms[room] != "tests") {
    return "CUDA stays inside kernels/cuda";
  }
  if (is_cuda_header(header) && !path.starts_with("kernels/cuda/")) {
    return "CUDA stays inside kernels/cuda";
  }
  if (header.starts_with("Eigen/") && !path.starts_with("kernels/reference/")) {
    return "Eigen stays inside kernels/reference";
  }
  return "";
}

/// Every rule that the file breaks, one line each.
std::vector<std::string> violations(std::string_view path, const std::string& text) {
  std::vector<std::string> found;
  if (!text.starts_with("//")) found.push_back(fmt::format("{} opens without a comment", path));
  const auto lines = std::count(text.begin(), text.end(), '\n');
  if (lines > kMostLines) found.push_back(fmt::format("{} has {} lines", path, lines));
  static const std::regex include("(?:^|\n)[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]");
  for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
    const std::string header = (*it)[1];
    const std::string wrong = wrong_include(path, header);
    if (!wrong.empty()) found.push_back(fmt::format("{} includes {}: {}", path, header, wrong));
  }
  return found;
}

/// Every source file of the rooms, relative to the checkout.
std::vector<std::string> source_files() {
  namespace fs = std::filesystem;
  const fs::path root = COPPICE_SOURCE_DIR;
  const std::vector<std::string> kinds = {".cpp", ".h", ".cc", ".cu", ".cuh", ".inc"};
  std::vector<std::string> files;
  for (const std::string_view room : kRooms) {
    for (const auto& entry : fs::recursive_directory_iterator(root / room)) {
      const bool source = std::count(kinds.begin(), kinds.end(), entry.path().extension()) > 0;
      if (source) files.push_back(fs::relative(entry.path(), root).generic_string());
    }
  }
  return files;
}

std::string read(const std::string& path) {
  std::ifstream in(std::filesystem::path(COPPICE_SOURCE_DIR) / path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Architecture, EverySourceFileKeepsTheRules) {
  const auto files = source_files();
  ASSERT_THAT(files, ::testing::Contains("tests/architecture_test.cpp"));
  ASSERT_THAT(files, ::testing::Contains("kernels/backend.h"));
  for (const std::string& file : files) EXPECT_THAT(violations(file, read(file)), IsEmpty());
}

TEST(Architecture, UpwardArrowIsCaught) {
  for (size_t from = 0; from < kRooms.size(); ++from) {
    for (size_t to = 0; to < kRooms.size(); ++to) {
      const auto path = fmt::format("{}/a.cpp", kRooms[from]);
      const auto text = fmt::format("// x\n#include \"{}/a.h\"\n", kRooms[to]);
      EXPECT_EQ(violations(path, text).empty(), to <= from) << path << " " << kRooms[to];
    }
  }
}

TEST(Architecture, OddSpellingsAreCaught) {
  for (const char* line : {"#include <core/tree.h>", "  #  include\t\"core/tree.h\"",
                           "#include \"core/tree.h\"  // why"}) {
    const auto text = fmt::format("// x\n#pragma once\n{}\n", line);
    EXPECT_THAT(violations("kernels/cpu/a.h", text), ElementsAre(HasSubstr("core/tree.h"))) << line;
  }
  EXPECT_THAT(violations("kernels/cpu/a.h", "// #include \"core/tree.h\"\n"), IsEmpty());
}

TEST(Architecture, DraftersDoNotKnowEachOther) {
  const std::string text = "// x\n#include \"drafters/jacobi.h\"\n";
  EXPECT_THAT(violations("drafters/lookahead.cpp", text), ElementsAre(HasSubstr("another")));
  EXPECT_THAT(violations("drafters/jacobi.cpp", text), IsEmpty());
  EXPECT_THAT(violations("drafters/methods.cpp", text), IsEmpty());
}

TEST(Architecture, ThirdPartyHeadersStayInTheirRoom) {
  const std::string eigen = "// x\n#include <Eigen/Core>\n";
  EXPECT_THAT(violations("kernels/cpu/a.cpp", eigen), ElementsAre(HasSubstr("Eigen")));
  EXPECT_THAT(violations("experiments/a.cpp", eigen), ElementsAre(HasSubstr("Eigen")));
  EXPECT_THAT(violations("kernels/reference/a.cpp", eigen), IsEmpty());
  for (const char* header : {"cuda_runtime.h", "cublas_v2.h", "cub/cub.cuh", "thrust/sort.h"}) {
    const auto text = fmt::format("// x\n#include <{}>\n", header);
    EXPECT_THAT(violations("core/a.cpp", text), ElementsAre(HasSubstr("CUDA"))) << header;
    EXPECT_THAT(violations("kernels/cuda/a.cu", text), IsEmpty()) << header;
  }
  EXPECT_THAT(violations("core/a.cpp", "// x\n#include \"kernels/cuda/a.h\"\n"),
              ElementsAre(HasSubstr("CUDA")));
  EXPECT_THAT(violations("core/a.cpp", "// x\n#include <cuchar>\n#include <string>\n"), IsEmpty());
}

TEST(Architecture, LongOrUncommentedFilesAreCaught) {
  EXPECT_THAT(violations("core/a.cpp", "#include <string>\n"), ElementsAre(HasSubstr("comment")));
  const std::string body(kMostLines - 1, '\n');
  EXPECT_THAT(violations("core/a.cpp", "// x\n" + body), IsEmpty());
  EXPECT_THAT(violations("core/a.cpp", "// x\n\n" + body), ElementsAre(HasSubstr("451 lines")));
}

}  // namespace
}  // namespace coppice
