// The texts are kept sorted; a match narrows the range of those that share the bytes read so far.
#include "core/special_tokens.h"

#include <algorithm>
#include <string>

namespace coppice {

SpecialTokens::SpecialTokens(std::vector<Entry> entries) : sorted_(std::move(entries)) {
  std::erase_if(sorted_, [](const Entry& entry) { return entry.first.empty(); });
  std::sort(sorted_.begin(), sorted_.end());
  for (uint32_t i = 0; i < sorted_.size(); ++i) {
    Range& range = by_first_byte_[static_cast<uint8_t>(sorted_[i].first.front())];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
  }
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (auto match = match_at(text, begin)) return match;
  }
  return std::nullopt;
}

std::optional<SpecialTokens::Match> SpecialTokens::match_at(std::string_view text,
                                                            size_t begin) const {
  std::optional<Match> longest;
  const Range range = by_first_byte_[static_cast<uint8_t>(text[begin])];
  auto low = sorted_.begin() + range.begin;
  auto high = sorted_.begin() + range.end;
  for (size_t depth = 1; low != high; ++depth) {
    // All in [low, high) share `depth` bytes with the text; the shortest comes first.
    if (low->first.size() == depth) {
      longest = {begin, depth, low->second};
      ++low;
    }
    if (begin + depth == text.size()) break;
    // char_traits order, as in the sort: bytes compare unsigned.
    const auto wanted = static_cast<uint8_t>(text[begin + depth]);
    low = std::partition_point(low, high, [&](const Entry& entry) {
      return static_cast<uint8_t>(entry.first[depth]) < wanted;
    });
    high = std::partition_point(low, high, [&](const Entry& entry) {
      return static_cast<uint8_t>(entry.first[depth]) == wanted;
    });
  }
  return longest;
}

}  // namespace coppice
