// README's table of methods and rules, from the lists themselves; a test keeps it current.
//
//   coppice methods --readme README.md
#pragma once

#include <string>

namespace coppice {

std::string methods_markdown();

}  // namespace coppice
