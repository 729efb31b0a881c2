// Reads and writes safetensors files, memory-mapped. Nothing in the file is believed: the header's
// size, every shape, type and offset is checked before it is used.
// Source: the safetensors format: u64 header size, a JSON header, then the tensors' bytes, all of
// them named by the header and none by two tensors.
//
//   SafetensorsFile file("head.safetensors");
//   TensorView fc = file.matrix("fc.weight", 576, 1152);
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/mapped_file.h"
#include "kernels/base/dtype.h"

namespace coppice {

struct SafeTensor {
  std::string name;
  std::string dtype;           // as in the file: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // outermost first; empty: one value
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  /// Maps the file. Throws Error naming the file, the tensor, and what was expected.
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// Reads an image in memory that outlives the object; `name` is for messages.
  SafetensorsFile(std::string name, std::span<const std::byte> image);

  const std::string& name() const { return name_; }
  std::span<const SafeTensor> tensors() const { return tensors_; }
  const SafeTensor* find(std::string_view name) const;    // null when absent
  const SafeTensor& tensor(std::string_view name) const;  // Error: absent; Failure: file was cut
  /// The header's "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// (rows, cols) of F32, F16 or BF16. U8 of (rows, cols / 32 x 34) or x 20 is taken for blocks
  /// of Q8_0 or Q4_1, which the format has no names for.
  TensorView matrix(std::string_view name, int64_t rows, int64_t cols) const;
  /// (size) of F32, F16 or BF16, as floats.
  std::vector<float> vector(std::string_view name, int64_t size) const;
  /// (size) of I64 or I32.
  std::vector<int64_t> integers(std::string_view name, int64_t size) const;

 private:
  void parse();
  void place(const std::vector<std::pair<uint64_t, uint64_t>>& offsets,
             std::span<const std::byte> data);

  std::unique_ptr<MappedFile> mapping_;  // null for an image in memory
  std::string name_;
  std::span<const std::byte> image_;
  std::vector<SafeTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// Writes beside `path`, then renames, so that a file of that name is always whole. The names are
/// distinct, the bytes as many as shape and type ask for. Throws Failure when it cannot be written.
void write_safetensors(const std::filesystem::path& path, std::span<const SafeTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace coppice
