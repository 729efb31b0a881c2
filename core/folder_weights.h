// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names.
//
//   FolderWeights weights("model", 0.0f);
//   TensorView q = weights.matrix("model.layers.0.self_attn.q_proj.weight", 576, 576);
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/safetensors.h"

namespace coppice {

/// The files that hold a folder's weights: one, or an index and its shards. Throws Error when there
/// are none, and for an index that names files elsewhere.
std::vector<std::filesystem::path> weight_files(const std::filesystem::path& folder);

class FolderWeights {
 public:
  /// Maps the files. `norm_offset` is added to what norms hold. Throws Error naming the file that
  /// is missing or damaged, and the tensor that the index and the shards disagree on.
  FolderWeights(const std::filesystem::path& folder, float norm_offset);

  /// All of these throw Error for a tensor that is missing, of another shape or another type; the
  /// views live as long as the object. (outputs, inputs), as the file holds it.
  TensorView matrix(const std::string& name, int64_t outputs, int64_t inputs);
  /// (1, values) of f32.
  TensorView norm(const std::string& name, int64_t values);
  TensorView bias(const std::string& name, int64_t values);
  /// Left out on purpose, if it is there.
  void pass_over(const std::string& name);
  /// A tensor that nobody asked for would be left out of the mathematics: Error.
  void refuse_untaken(std::string_view architecture) const;

 private:
  struct Place {
    size_t file = 0;
    bool taken = false;
  };
  const SafetensorsFile& take(const std::string& name);
  TensorView vector(const std::string& name, int64_t values, float offset);

  std::string folder_;
  float norm_offset_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> places_;
  std::deque<std::vector<float>> vectors_;  // as floats; what views point to
};

}  // namespace coppice
