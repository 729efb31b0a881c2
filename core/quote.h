// Text from a file or a user, made fit for one line of a message or a table: control characters and
// bytes that are not UTF-8 are escaped.
//
//   throw Error("{}: key {} occurs twice", file, quote(key));
#pragma once

#include <string>
#include <string_view>

namespace coppice {

/// "a\x0ab", "caf\xe9" (an ill-formed byte), "naïve". A backslash is doubled.
std::string escape(std::string_view text);

/// Escaped, in single quotes; the middle of a text longer than about 80 characters is left out.
std::string quote(std::string_view text);

}  // namespace coppice
