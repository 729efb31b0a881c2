// Finds tokens that are matched in the text itself, before any merge: control tokens such as
// "<|im_end|>", and the entries a vocabulary's author added, such as Gemma's runs of new lines.
//
//   SpecialTokens tokens({{"<|im_end|>", 2}});
//   tokens.find("hi<|im_end|>", 0);  // {2, 10, 2}
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace coppice {

class SpecialTokens {
 public:
  using Entry = std::pair<std::string_view, int32_t>;  // text, id
  struct Match {
    size_t begin;
    size_t length;
    int32_t id;
  };

  /// The texts are distinct and must outlive the object; an empty one is never found.
  explicit SpecialTokens(std::vector<Entry> entries);

  /// The leftmost match at or behind `from`, the longest of those that begin there.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  std::optional<Match> match_at(std::string_view text, size_t begin) const;

  std::vector<Entry> sorted_;
  std::array<Range, 256> by_first_byte_{};
};

}  // namespace coppice
