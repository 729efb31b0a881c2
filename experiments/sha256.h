// SHA-256 of a file, so that a manifest names the exact weights. Source: FIPS 180-4.
//
//   std::string hex = sha256_of_file("model.gguf");
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace coppice {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits; call once, last.
  std::string finish();

 private:
  void compress(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                    0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::byte, 64> held_{};
  uint64_t bytes_ = 0;
};

/// Throws Failure when the file cannot be read to its end.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace coppice
