// UTF-8, one sequence at a time. Ill-formed bytes are cut as the Unicode Standard recommends
// (section 3.9, "maximal subparts", table 3-7): each subpart stands for one U+FFFD.
//
//   replace_ill_formed("a\xE2\x80z") == "a\uFFFDz"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coppice {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Kind {
  character,
  ill_formed,  // no continuation could complete it
  unfinished,  // the text ends inside a character that more bytes may complete
};

struct Utf8Sequence {
  Utf8Kind kind;
  size_t length;        // bytes, at least 1
  char32_t code_point;  // of a character, else U+FFFD
};

/// The sequence at the front of a text that is not empty.
Utf8Sequence utf8_front(std::string_view text);

/// Length in bytes of the longest well-formed beginning.
size_t well_formed_prefix(std::string_view text);

/// The text with one U+FFFD in place of every maximal subpart that is no character; an unfinished
/// character at the end is one such subpart.
std::string replace_ill_formed(std::string_view text);

}  // namespace coppice
