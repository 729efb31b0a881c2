// A fast 64-bit hash of bytes, to recognise what something was made for.
// Against accidents, not against attackers.
//
//   Checksum sum;
//   sum.add(text);
//   uint64_t print = sum.value();
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace coppice {

static_assert(std::endian::native == std::endian::little, "the hash reads words as they stand");

class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    for (size_t at = 0; at < bytes.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
      hash_ = std::rotl((hash_ ^ word) * 0x9e3779b97f4a7c15u, 29);
    }
    hash_ ^= bytes.size();
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  uint64_t value() const { return hash_ ^ hash_ >> 32; }

 private:
  uint64_t hash_ = 0x243f6a8885a308d3u;
};

}  // namespace coppice
