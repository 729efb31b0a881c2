// A model as Hugging Face publishes it: a folder with config.json, model.safetensors (or shards and
// their index) and tokenizer.json, and the files that say how it chats and where answers end.
//
//   ModelFolder folder("SmolLM2-135M-Instruct");
//   ModelSource source = folder.source();   // views into `folder`, which must outlive packing
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "core/model_source.h"
#include "core/tokenizer.h"

namespace coppice {

class ModelFolder {
 public:
  /// The folder that a path means: itself, or where it names a config.json or .safetensors file of
  /// a model, the one around it. Empty: the path means no folder. Throws Error for a .safetensors
  /// file that is not one of a model's.
  static std::filesystem::path find(const std::filesystem::path& path);

  /// Reads config.json alone. These throw Error as FolderConfig, FolderWeights and
  /// read_folder_vocabulary do.
  explicit ModelFolder(std::filesystem::path folder);
  ModelFolder(ModelFolder&&) noexcept;
  ~ModelFolder();

  /// What a GGUF file of the model gives, but for Q and K, whose rows stand in halves for llama
  /// too. Maps the weights, which the object keeps.
  ModelSource source();
  Vocabulary vocabulary() const;
  /// Those that decide what the model says, in a fixed order.
  std::vector<std::filesystem::path> files() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace coppice
