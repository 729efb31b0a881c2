// Text from a file or a user, made fit for a one-line message: in single quotes, bytes outside
// printable ASCII escaped, long text cut in the middle.
//
//   throw Error("{}: key {} occurs twice", file, quote(key));
#pragma once

#include <string>
#include <string_view>

namespace coppice {

/// 'abc', 'a\x00b', 'first 60 bytes...last 20 bytes'.
std::string quote(std::string_view text);

}  // namespace coppice
