// The short names of models: the program's list and the list that experiments/models.sh fetches
// from must say the same. Source: experiments/models.txt.
#include "experiments/model_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tests/scratch.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

struct Fetched {
  std::string name, file, sha256;
};

/// The lines "# NAME FILE SHA256".
std::vector<Fetched> fetched_models() {
  std::ifstream in(fs::path(COPPICE_SOURCE_DIR) / "experiments/models.txt");
  std::vector<Fetched> models;
  for (std::string line, mark; std::getline(in, line);) {
    std::istringstream words(line);
    Fetched model;
    words >> mark >> model.name >> model.file >> model.sha256;
    if (mark == "#" && model.sha256.size() == 64) models.push_back(model);
  }
  return models;
}

TEST(ModelFiles, ShortNamesAreThoseThatAreFetched) {
  const fs::path folder = fs::path(testing::TempDir()) / "coppice-model-files-test";
  fs::create_directories(folder);
  ASSERT_EQ(setenv("COPPICE_MODELS", folder.c_str(), 1), 0);
  const auto fetched = fetched_models();
  const auto names = model_names();
  ASSERT_EQ(names.size(), fetched.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], fetched[i].name);
    EXPECT_THROW(find_model(names[i], {}), Error);
    std::ofstream(folder / fetched[i].file) << "GGUF";
    EXPECT_EQ(find_model(names[i], {}), folder / fetched[i].file);
  }
  fs::remove_all(folder);
}

TEST(ModelFiles, AFolderIsAModelToo) {
  const test::Scratch scratch;
  fs::create_directories(scratch / "SmolLM2");
  EXPECT_EQ(find_model("SmolLM2", scratch.path()), scratch / "SmolLM2");
  EXPECT_EQ(find_model("SmolLM2/", scratch.path()), scratch / "SmolLM2");
  EXPECT_THROW(find_model("SmolLM3", scratch.path()), Error);
  EXPECT_THROW(find_model("", scratch.path()), Error);
}

}  // namespace
}  // namespace coppice
