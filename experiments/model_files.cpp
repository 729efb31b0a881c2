// See model_files.h.
#include "experiments/model_files.h"

#include <fmt/ranges.h>

#include <cstdlib>

#include "core/model_folder.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

struct KnownModel {
  std::string_view name, file;
};
constexpr KnownModel kModels[] = {
    {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"},
    {"qwen-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
    {"qwen-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
    {"gemma-270m", "gemma-3-270m-q4_k_m.gguf"},
};

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

std::optional<fs::path> first_file(std::initializer_list<fs::path> candidates) {
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored)) return candidate;
  }
  return std::nullopt;
}

}  // namespace

fs::path models_folder() {
  if (const char* folder = variable("COPPICE_MODELS")) return folder;
  if (const char* cache = variable("XDG_CACHE_HOME")) return fs::path(cache) / "coppice/models";
  const char* home = variable("HOME");
  return fs::path(home != nullptr ? home : ".") / ".cache/coppice/models";
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const KnownModel& model : kModels) names.push_back(model.name);
  return names;
}

fs::path find_model(std::string_view text, const fs::path& base) {
  for (const KnownModel& model : kModels) {
    if (model.name != text) continue;
    if (const auto found = first_file({models_folder() / model.file})) return *found;
    throw Error("{}: the model is not in {}; fetch it with `bash experiments/models.sh {}`", text,
                models_folder().string(), text);
  }
  const fs::path path(text);
  const auto candidates = {base / path, path, models_folder() / path};
  if (const auto found = first_file(candidates)) return *found;
  for (const fs::path& candidate : candidates) {
    std::error_code ignored;
    if (!text.empty() && fs::is_directory(candidate, ignored)) return ModelFolder::find(candidate);
  }
  throw Error("{}: no such model; give a GGUF file, a Hugging Face folder or one of: {}",
              quote(text), fmt::join(model_names(), ", "));
}

std::optional<fs::path> find_beside(const fs::path& path, const fs::path& base) {
  return first_file({base / path, base / ".." / path, path});
}

std::optional<fs::path> find_data(const fs::path& path, const fs::path& base) {
  if (auto found = find_beside(path, base)) return found;
  const char* data = std::getenv("COPPICE_DATA");
  return data == nullptr ? std::nullopt : first_file({fs::path(data) / path});
}

}  // namespace coppice
