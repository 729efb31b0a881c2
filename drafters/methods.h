// The list of methods. A new one is its file, a line in methods.cpp, its config and its test.
//
//   const MethodEntry& method = find_method("prompt_lookup");
//   auto drafter = method.make(options, parts);
#pragma once

#include "decoding/registry.h"

namespace coppice {

/// The baseline first.
std::span<const MethodEntry> methods();
/// Throws Error naming the nearest method.
const MethodEntry& find_method(std::string_view name);

}  // namespace coppice
