// What `coppice inspect FILE` shows of a model file: one page for a person, the same as JSON, and
// the full lists of tensors and keys.
//
//   fmt::print("{}", describe_model(GgufFile("model.gguf")));
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/gguf.h"

namespace coppice {

/// Name, shape, tokenizer, template, and how much of the file each tensor type takes. A model that
/// Coppice does not run is described as well, with the reason.
std::string describe_model(const GgufFile& file);

/// One line a tensor: name, type, shape (outputs x inputs), bytes.
std::string list_tensors(const GgufFile& file);

/// One line a key: name and value; long texts and arrays are cut.
std::string list_keys(const GgufFile& file);

/// The page as an object; "tensors" holds the list. "shape" and "refusal": exactly one is null.
nlohmann::json model_json(const GgufFile& file);

}  // namespace coppice
