// Where tests find real models, data and golden values: none of them is committed but the golden
// values. A test whose file is absent skips with one line; where CI is set it fails instead.
//
//   REQUIRE_MODEL(path, "SmolLM2-135M-Instruct.Q4_1.gguf");
//   GgufFile file(path);
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "experiments/model_files.h"

namespace coppice::test {

inline std::optional<std::filesystem::path> existing(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return path;
  return std::nullopt;
}

inline std::optional<std::filesystem::path> model_file(const std::string& name) {
  return existing(models_folder() / name);
}
inline std::optional<std::filesystem::path> data_file(const std::string& name) {
  const char* folder = std::getenv("COPPICE_DATA");
  return folder != nullptr ? existing(std::filesystem::path(folder) / name) : std::nullopt;
}
inline std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(COPPICE_SOURCE_DIR) / "tests" / "golden" / name;
}

}  // namespace coppice::test

#define COPPICE_REQUIRE_FILE(variable_name, found, name, variable)                              \
  const auto variable_name##_found = (found);                                                   \
  if (!variable_name##_found) {                                                                 \
    if (std::getenv("CI") != nullptr) FAIL() << (name) << " is absent; set " << (variable);     \
    GTEST_SKIP() << (name) << " is absent; set " << (variable) << " to the folder that has it"; \
  }                                                                                             \
  const std::filesystem::path& variable_name = *variable_name##_found

/// Defines `path`, or skips the test (fails it in CI) when the model file is absent.
#define REQUIRE_MODEL(path, name) \
  COPPICE_REQUIRE_FILE(path, ::coppice::test::model_file(name), name, "COPPICE_MODELS")
/// The same for a data file, given relative to the data folder.
#define REQUIRE_DATA(path, name) \
  COPPICE_REQUIRE_FILE(path, ::coppice::test::data_file(name), name, "COPPICE_DATA")
