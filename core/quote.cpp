// Escaping character by character: a name from a file must not break a terminal, a log or JSON.
// Source: own; UTF-8 by utf8.h.
//
//   quote("a\n");  // 'a\x0a'
#include "core/quote.h"

#include <fmt/format.h>

#include "core/utf8.h"

namespace coppice {
namespace {

constexpr size_t kHeadBytes = 60;
constexpr size_t kTailBytes = 20;

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Sequence front = utf8_front(text);
    const std::string_view bytes = text.substr(0, front.length);
    if (bytes == "\\") {
      out += "\\\\";
    } else if (front.kind == Utf8Kind::character && !is_control(front.code_point)) {
      out += bytes;
    } else {
      for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(front.length);
  }
  return out;
}

std::string quote(std::string_view text) {
  if (text.size() <= kHeadBytes + kTailBytes) return fmt::format("'{}'", escape(text));
  size_t head = kHeadBytes;
  size_t tail = text.size() - kTailBytes;
  // Not inside a character: its other bytes are at most three.
  for (int i = 0; i < 3 && is_continuation(text[head]); ++i) --head;
  for (int i = 0; i < 3 && is_continuation(text[tail]); ++i) ++tail;
  return fmt::format("'{}...{}'", escape(text.substr(0, head)), escape(text.substr(tail)));
}

}  // namespace coppice
