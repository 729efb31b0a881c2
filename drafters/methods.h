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

/// Every option of a method; those of its parts as `part.key`. `given` says which parts there are.
std::vector<OptionDoc> options_of(const MethodEntry& method, const OptionMap& given);
/// Itself, or a part of it.
bool needs_draft_model(const MethodEntry& method, const OptionMap& given);
/// The rule of a method for which none is asked.
std::string_view default_rule(const MethodEntry& method, float temperature);

}  // namespace coppice
