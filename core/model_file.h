// A model on disk, whichever way it is kept: one GGUF file, or a folder of Hugging Face's files.
//
//   ModelFile file("smollm2.gguf");         // or "SmolLM2-135M-Instruct", its folder
//   Model model(file.source(), *backend);   // the views of source() are into `file`
//   Tokenizer tokenizer(file.vocabulary());
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <variant>

#include "core/model_folder.h"

namespace coppice {

class ModelFile {
 public:
  /// A folder, a path to its config.json or to its .safetensors, else a GGUF file. Throws Error as
  /// the two readers do; so do the calls below.
  explicit ModelFile(const std::filesystem::path& path);

  ModelSource source();
  Vocabulary vocabulary() const;

 private:
  std::variant<GgufFile, ModelFolder> file_;
};

/// Of all the files that a model is read from. The SHA-256 of a folder is that of the lines that
/// `sha256sum` prints for its files, in the order of ModelFolder::files().
struct ModelIdentity {
  uintmax_t bytes = 0;
  std::string sha256;
};
ModelIdentity identify_model(const std::filesystem::path& path);

}  // namespace coppice
