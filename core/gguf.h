// Reads GGUF model files, versions 2 and 3, memory-mapped. Nothing in the file is believed: every
// count, offset, type and product is checked against the file's size before it is used.
// Source: the GGUF specification (ggml).
//
//   GgufFile file("model.gguf");
//   int layers = file.integer("llama.block_count", 1, 1024);
//   TensorView w = file.tensor("blk.0.attn_q.weight").view;
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/mapped_file.h"
#include "kernels/base/dtype.h"

namespace coppice {

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // as in the file: shape[0] is the contiguous dimension
  TensorView view;             // rows = product of shape[1..], cols = shape[0]
};

/// A metadata value: integers widened to 64 bits, floats to double. An array keeps its elements'
/// declared type; arrays of arrays are refused.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>,
                               std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

class GgufFile {
 public:
  /// Maps the file. Throws Error naming the file, the key or tensor, and what was expected.
  explicit GgufFile(const std::filesystem::path& path);
  /// Reads an image in memory, 8-byte aligned, that outlives the object; `name` is for messages.
  GgufFile(std::string name, std::span<const std::byte> image);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  size_t bytes() const { return image_.size(); }
  size_t alignment() const { return alignment_; }

  /// Null when the key is absent.
  const GgufValue* find(std::string_view key) const;
  /// The value, checked to be an integer in [low, high]; Error names the key otherwise.
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  int64_t integer_or(std::string_view key, int64_t low, int64_t high, int64_t fallback) const;
  double real(std::string_view key) const;  // finite
  double real_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  const std::string& text(std::string_view key) const;
  /// Arrays of one declared element type; Error when another type or absent.
  const std::vector<std::string>& texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<float> reals(std::string_view key) const;

  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;  // null when absent
  const GgufTensor& tensor(std::string_view name) const;  // Error: absent; Failure: file was cut
  /// Keys in file order, for `coppice inspect`.
  std::span<const std::pair<std::string, GgufValue>> metadata() const { return metadata_; }

 private:
  void parse();

  std::unique_ptr<MappedFile> mapping_;  // null for an image in memory
  std::string name_;
  std::span<const std::byte> image_;
  uint32_t version_ = 0;
  size_t alignment_ = 32;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::unordered_map<std::string, size_t> key_index_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string, size_t> tensor_index_;
};

}  // namespace coppice
