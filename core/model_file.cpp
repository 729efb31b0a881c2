// See model_file.h.
#include "core/model_file.h"

#include "core/file_hash.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

std::variant<GgufFile, ModelFolder> open(const fs::path& path) {
  const fs::path folder = ModelFolder::find(path);
  if (folder.empty()) return GgufFile(path);
  return ModelFolder(folder);
}

}  // namespace

ModelFile::ModelFile(const fs::path& path) : file_(open(path)) {}

ModelSource ModelFile::source() {
  if (auto* folder = std::get_if<ModelFolder>(&file_)) return folder->source();
  return read_model(std::get<GgufFile>(file_));
}

Vocabulary ModelFile::vocabulary() const {
  if (const auto* folder = std::get_if<ModelFolder>(&file_)) return folder->vocabulary();
  return read_vocabulary(std::get<GgufFile>(file_));
}

ModelIdentity identify_model(const fs::path& path) {
  // A draft model that was distilled is one file, with its config inside.
  const bool one_file =
      path.extension() == ".safetensors" && !fs::exists(path.parent_path() / "config.json");
  const fs::path folder = one_file ? fs::path() : ModelFolder::find(path);
  if (folder.empty()) return {fs::file_size(path), sha256_of(path)};
  ModelIdentity identity;
  std::string lines;
  for (const fs::path& file : ModelFolder(folder).files()) {
    identity.bytes += fs::file_size(file);
    lines += fmt::format("{}  {}\n", sha256_of(file), file.filename().string());
  }
  identity.sha256 = sha256_of_text(lines);
  return identity;
}

}  // namespace coppice
