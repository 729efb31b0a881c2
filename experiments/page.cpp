// See page.h.
#include "experiments/page.h"

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace coppice {

struct PagePart {
  std::string_view file, text;
};
extern const PagePart kPageParts[];  // embed.cmake writes them
extern const size_t kPagePartCount;

std::string_view page_part(std::string_view file) {
  for (size_t i = 0; i < kPagePartCount; ++i) {
    if (kPageParts[i].file == file) return kPageParts[i].text;
  }
  COPPICE_CHECK(false && "no such part");
  return "";
}

std::string fill_page(std::string_view page, const std::map<std::string, std::string>& values) {
  std::string out;
  size_t at = 0;
  for (size_t open; (open = page.find("{{", at)) != std::string_view::npos;) {
    const size_t close = page.find("}}", open);
    COPPICE_CHECK(close != std::string_view::npos);
    out += page.substr(at, open - at);
    const std::string name(page.substr(open + 2, close - open - 2));
    const auto value = values.find(name);
    out += value != values.end() ? std::string_view(value->second) : page_part(name);
    at = close + 2;
  }
  return out + std::string(page.substr(at));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string json_for_page(const nlohmann::ordered_json& json) {
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (const char c : text) out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return out;
}

}  // namespace coppice
