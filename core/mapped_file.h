// A file mapped read-only into memory.
// Source: mmap(2).
//
//   MappedFile file("store.bin", "a datastore");
//   std::span<const std::byte> image = file.image();
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace coppice {

class MappedFile {
 public:
  /// `what` the file should be, for messages. Throws Error when it cannot be opened, is no regular
  /// file or is empty, Failure when it cannot be mapped.
  MappedFile(const std::string& path, std::string_view what);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> image() const { return image_; }
  /// Advice that it will be read from front to back.
  void read_ahead() const;
  /// False when the file was cut after it was mapped: reading a mapping past the file's end kills
  /// the process.
  bool whole() const;

 private:
  int descriptor_ = -1;
  std::span<const std::byte> image_;
};

}  // namespace coppice
