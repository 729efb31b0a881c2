// The pre-tokeniser patterns, matched by PCRE2 with its just-in-time compiler where it has one.
#include "core/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "kernels/base/error.h"

namespace coppice {
namespace {

struct Pattern {
  std::string_view name;
  std::string_view text;
  std::string_view regex = {};  // as a tokenizer.json spells it; empty: it has other means
};

// W stands for kWhiteSpace, inside a class.
constexpr std::array<Pattern, 4> kPatterns = {{
    {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^W\p{L}\p{N}]+|[W]+(?![^W])|[W]+)",
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^W\p{L}\p{N}]+[\r\n]*|)"
     R"([W]*[\r\n]+|[W]+(?![^W])|[W]+)",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^W\p{L}\p{N}]+[\r\n]*|)"
     R"([W]*[\r\n]+|[W]+(?![^W])|[W]+)",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    // Defined as two passes: every number character is cut off, then gpt-2 on what lies between.
    // White space before a number therefore ends its part and stays one piece.
    {"smollm", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^W\p{L}\p{N}]+|[W]++(?=\p{N})|)"
               R"([W]+(?![^W])|[W]+)"},
}};

// Unicode's White_Space property, spelled out: PCRE2's own \s takes U+180E for a space and, without
// PCRE2_UCP, knows ASCII only.
constexpr std::string_view kWhiteSpace = R"(\t-\r\x{85}\p{Z})";

const Pattern* find_pattern(std::string_view name) {
  const auto* found = std::find_if(kPatterns.begin(), kPatterns.end(),
                                   [&](const Pattern& pattern) { return pattern.name == name; });
  return found == kPatterns.end() ? nullptr : found;
}

std::string expand(std::string_view pattern) {
  std::string result;
  for (const char c : pattern) {
    if (c == 'W') {
      result += kWhiteSpace;
    } else {
      result += c;
    }
  }
  return result;
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

void PreTokenizer::Free::operator()(pcre2_real_code_8* code) const {
  pcre2_code_free(code);
}

bool PreTokenizer::is_known(std::string_view name) {
  return find_pattern(name) != nullptr;
}

std::string_view PreTokenizer::name_of_regex(std::string_view regex) {
  for (const Pattern& pattern : kPatterns) {
    if (!pattern.regex.empty() && pattern.regex == regex) return pattern.name;
  }
  return {};
}

std::string_view PreTokenizer::known_names() {
  return "gpt-2, llama-bpe, qwen2, smollm";
}

PreTokenizer::PreTokenizer(std::string_view name) {
  const Pattern* pattern = find_pattern(name);
  COPPICE_CHECK(pattern != nullptr);
  const std::string text = expand(pattern->text);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF,
                            &error, &offset, nullptr));
  COPPICE_CHECK(code_ != nullptr);
  // Refused where PCRE2 was built without it: matching then interprets, slower and the same.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

void PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(
      pcre2_match_context_create(nullptr));
  COPPICE_CHECK(data != nullptr && context != nullptr);
  // The limit is for patterns that backtrack without end; none here goes back over a run more than
  // once, and a long run is no error.
  pcre2_set_match_limit(context.get(), UINT32_MAX);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  for (size_t at = 0; at < text.size(); at = bounds[1]) {
    // Each call would otherwise validate all that is left: quadratic.
    const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    // Every character is matched by some alternative, so a piece begins where the last one ended.
    if (count < 0 || bounds[0] != at || bounds[1] <= at) {
      throw Failure("pre-tokenizer: no piece at byte {} of {} (PCRE2 answered {})", at, text.size(),
                    count);
    }
    pieces.push_back(text.substr(at, bounds[1] - at));
  }
}

}  // namespace coppice
