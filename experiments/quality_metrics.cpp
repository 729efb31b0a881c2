// See quality_metrics.h.
#include "experiments/quality_metrics.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <vector>

namespace coppice {
namespace {

constexpr size_t kGram = 4;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = byte >= 0x80 || std::isalnum(byte) != 0;
    if (letter && !inside) words.emplace_back();
    if (letter) words.back() += static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
    inside = letter;
  }
  return words;
}

size_t longest_common_subsequence(const std::vector<std::string>& a,
                                  const std::vector<std::string>& b) {
  std::vector<size_t> row(b.size() + 1), above;
  for (const std::string& word : a) {
    above = row;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = word == b[j] ? above[j] + 1 : std::max(above[j + 1], row[j]);
    }
  }
  return row.back();
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

/// The number that begins at `at`, a digit; moves `at` behind it.
std::string number_at(std::string_view text, size_t& at) {
  std::string digits;
  const bool negative = at > 0 && text[at - 1] == '-';
  bool fraction = false;
  for (; at < text.size(); ++at) {
    const bool digit_follows = at + 1 < text.size() && is_digit(text[at + 1]);
    if (is_digit(text[at])) {
      digits += text[at];
    } else if (text[at] == '.' && digit_follows && !fraction) {
      fraction = true;
      digits += '.';
    } else if (text[at] != ',' || !digit_follows || fraction) {
      break;
    }
  }
  if (fraction) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
  }
  return (negative ? "-" : "") + digits;
}

}  // namespace

double rouge_l(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> ours = words_of(answer), theirs = words_of(reference);
  if (ours.empty() || theirs.empty()) return 0.0;
  const auto common = static_cast<double>(longest_common_subsequence(ours, theirs));
  return 2.0 * common / static_cast<double>(ours.size() + theirs.size());
}

std::optional<std::string> final_number(std::string_view text) {
  const size_t mark = text.rfind("####");
  if (mark != std::string_view::npos) text.remove_prefix(mark + 4);
  std::optional<std::string> last;
  for (size_t at = 0; at < text.size();) {
    if (!is_digit(text[at])) {
      ++at;
      continue;
    }
    std::string number = number_at(text, at);
    if (mark != std::string_view::npos) return number;
    last = std::move(number);
  }
  return last;
}

bool exact_match(std::string_view answer, std::string_view reference) {
  return squeezed(answer) == squeezed(reference);
}

double repetition_rate(std::span<const int32_t> ids) {
  if (ids.size() <= kGram) return 0.0;
  std::set<std::array<int32_t, kGram>> distinct;
  const size_t grams = ids.size() - kGram + 1;
  for (size_t i = 0; i < grams; ++i) {
    std::array<int32_t, kGram> gram;
    std::copy_n(ids.begin() + static_cast<std::ptrdiff_t>(i), kGram, gram.begin());
    distinct.insert(gram);
  }
  return 1.0 - static_cast<double>(distinct.size()) / static_cast<double>(grams);
}

std::optional<int> first_difference(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (differ.first == a.end() && differ.second == b.end()) return std::nullopt;
  return static_cast<int>(differ.first - a.begin());
}

}  // namespace coppice
