// Escapes byte by byte: a name that is not valid UTF-8 must not break a terminal or a log.
// Source: own.
//
//   quote("a\n");  // 'a\x0a'
#include "core/quote.h"

#include <fmt/format.h>

namespace coppice {
namespace {

constexpr size_t kHead = 60;
constexpr size_t kTail = 20;

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\\') {
      out += c;
    } else {
      out += c == '\\' ? "\\\\" : fmt::format("\\x{:02x}", byte);
    }
  }
}

}  // namespace

std::string quote(std::string_view text) {
  std::string out = "'";
  if (text.size() <= kHead + kTail) {
    append_escaped(out, text);
  } else {
    append_escaped(out, text.substr(0, kHead));
    out += "...";
    append_escaped(out, text.substr(text.size() - kTail));
  }
  return out + "'";
}

}  // namespace coppice
