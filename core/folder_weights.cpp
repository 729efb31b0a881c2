// See folder_weights.h.
#include "core/folder_weights.h"

#include <set>

#include "core/json_object.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhole = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

JsonObject weight_map(const fs::path& index) {
  const JsonObject file = JsonObject::read(index, "the index of a model's shards");
  const std::optional<JsonObject> map = file.object("weight_map");
  if (!map || map->value().empty()) {
    throw Error("{}: key 'weight_map' is missing or empty; fetch the file again", index.string());
  }
  for (const auto& [tensor, shard] : map->value().items()) {
    // A plain name: an index must not make us read files elsewhere.
    const fs::path name = shard.is_string() ? fs::path(shard.get<std::string>()) : fs::path();
    if (name.empty() || name != name.filename() || name.extension() != ".safetensors") {
      map->refuse(tensor, "the name of a .safetensors file in the same folder");
    }
  }
  return *map;
}

}  // namespace

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kWhole, error)) return {folder / kWhole};
  if (!fs::exists(folder / kIndex, error)) {
    throw Error(
        "{}: holds neither {} nor {}; pickled weights (.bin, .pth) are not read: save the model as "
        "safetensors",
        folder.string(), kWhole, kIndex);
  }
  std::set<std::string> shards;
  const JsonObject map = weight_map(folder / kIndex);
  for (const auto& [tensor, shard] : map.value().items()) {
    shards.insert(shard.get<std::string>());
  }
  std::vector<fs::path> files = {folder / kIndex};
  for (const std::string& shard : shards) {
    files.push_back(folder / shard);
    if (!fs::exists(files.back(), error)) {
      throw Error("{}: the shard is missing, {} names it; fetch the model again",
                  files.back().string(), kIndex);
    }
  }
  return files;
}

FolderWeights::FolderWeights(const fs::path& folder, float norm_offset)
    : folder_(folder.string()), norm_offset_(norm_offset) {
  const std::vector<fs::path> paths = weight_files(folder);
  for (const fs::path& path : paths) {
    if (path.extension() != ".safetensors") continue;  // the index
    files_.emplace_back(path);
    for (const SafeTensor& tensor : files_.back().tensors()) {
      const auto [first, added] = places_.try_emplace(tensor.name, Place{files_.size() - 1});
      if (!added) {
        throw Error("{}: tensor {} stands in {} as well; fetch the model again",
                    files_.back().name(), quote(tensor.name), files_[first->second.file].name());
      }
    }
  }
  if (paths.front().extension() == ".safetensors") return;
  const JsonObject map = weight_map(paths.front());
  for (const auto& [tensor, shard] : map.value().items()) {
    const auto found = places_.find(tensor);
    const std::string wanted = (folder / shard.get<std::string>()).string();
    if (found == places_.end() || files_[found->second.file].name() != wanted) {
      throw Error("{}: tensor {} is missing, {} says it is there; fetch the model again", wanted,
                  quote(tensor), kIndex);
    }
  }
}

const SafetensorsFile& FolderWeights::take(const std::string& name) {
  const auto found = places_.find(name);
  if (found == places_.end()) {
    throw Error("{}: tensor {} is missing; config.json asks for it", folder_, quote(name));
  }
  found->second.taken = true;
  return files_[found->second.file];
}

TensorView FolderWeights::matrix(const std::string& name, int64_t outputs, int64_t inputs) {
  return take(name).matrix(name, outputs, inputs);
}

TensorView FolderWeights::norm(const std::string& name, int64_t values) {
  return vector(name, values, norm_offset_);
}

TensorView FolderWeights::bias(const std::string& name, int64_t values) {
  return vector(name, values, 0.0f);
}

TensorView FolderWeights::vector(const std::string& name, int64_t values, float offset) {
  vectors_.push_back(take(name).vector(name, values));
  for (float& value : vectors_.back()) value += offset;
  return {DType::f32, reinterpret_cast<const std::byte*>(vectors_.back().data()), 1, values};
}

void FolderWeights::pass_over(const std::string& name) {
  if (const auto found = places_.find(name); found != places_.end()) found->second.taken = true;
}

void FolderWeights::refuse_untaken(std::string_view architecture) const {
  for (const auto& [name, place] : places_) {
    // Tables that early files hold; they follow from the config.
    if (place.taken || name.ends_with(".rotary_emb.inv_freq")) continue;
    throw Error("{}: tensor {} is not one of architecture {}; the model is not supported",
                files_[place.file].name(), quote(name), architecture);
  }
}

}  // namespace coppice
