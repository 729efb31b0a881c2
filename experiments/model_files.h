// Where models and files named by a config lie. A model is a path (of a GGUF file or a Hugging Face
// folder) or a short name of the list that
// experiments/models.sh fetches; both are looked for in the folder of models too.
//
//   std::filesystem::path path = find_model("smollm2", {});
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice {

/// $COPPICE_MODELS, or coppice/models in the user's cache.
std::filesystem::path models_folder();
/// Short names, in the order of experiments/models.txt.
std::vector<std::string_view> model_names();
/// `text` is a short name or a path; a relative path is looked for under `base` (a config's
/// folder), in the current folder and in the folder of models. Throws Error with the command that
/// fetches it.
std::filesystem::path find_model(std::string_view text, const std::filesystem::path& base);
/// A file that a config names: relative to `base`, to the folder above it (so that
/// "configs/methods/x.toml" works in configs/), or to the current folder. Empty when there is none.
std::optional<std::filesystem::path> find_beside(const std::filesystem::path& path,
                                                 const std::filesystem::path& base);
/// The same, and then in $COPPICE_DATA.
std::optional<std::filesystem::path> find_data(const std::filesystem::path& path,
                                               const std::filesystem::path& base);

}  // namespace coppice
