// UTF-8 sequences by the table of well-formed byte ranges: Unicode Standard, table 3-7.
#include "core/utf8.h"

#include <cstdint>

#include "kernels/base/error.h"

namespace coppice {
namespace {

/// What a lead byte announces: the length, and the range of the second byte, which alone keeps out
/// overlong forms, surrogates and what lies above U+10FFFF. Length 0: not a lead byte.
struct Lead {
  size_t length;
  uint8_t second_low;
  uint8_t second_high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Sequence utf8_front(std::string_view text) {
  COPPICE_CHECK(!text.empty());
  const auto first = static_cast<uint8_t>(text[0]);
  const Lead lead = lead_of(first);
  if (lead.length == 0) return {Utf8Kind::ill_formed, 1, U'\uFFFD'};
  if (lead.length == 1) return {Utf8Kind::character, 1, first};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::unfinished, i, U'\uFFFD'};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::ill_formed, i, U'\uFFFD'};
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  return {Utf8Kind::character, lead.length, code_point};
}

size_t well_formed_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Sequence front = utf8_front(text.substr(at));
    if (front.kind != Utf8Kind::character) break;
    at += front.length;
  }
  return at;
}

std::string replace_ill_formed(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t good = well_formed_prefix(text);
    result += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    result += kReplacementCharacter;
    text.remove_prefix(utf8_front(text).length);
  }
  return result;
}

}  // namespace coppice
