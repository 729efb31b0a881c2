// The shape of a model from the config.json of a Hugging Face folder.
// Source: the configuration classes of transformers 4 and 5, by their keys.
//
//   FolderConfig config = read_folder_config(JsonObject::read("model/config.json", "a config"));
#pragma once

#include <vector>

#include "core/architecture.h"
#include "core/json_object.h"

namespace coppice {

struct FolderConfig {
  const Architecture* architecture = nullptr;
  ModelConfig model;                  // without a name
  bool tied = false;                  // the output layer is the embedding
  std::vector<float> rotary_factors;  // (head_dim/2) that frequencies are divided by; empty: none
};

/// Throws Error naming the file and the key that is missing, out of range, or asks for mathematics
/// this project does not have: quantised weights, biases, other kinds of rope scaling, soft caps.
FolderConfig read_folder_config(const JsonObject& config);

}  // namespace coppice
