// A method's line in the list of methods: what it is called, where it was published, which options
// it has, and how its drafter is made. The list itself is drafters/methods.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model.h"
#include "core/options.h"
#include "core/tokenizer.h"
#include "decoding/drafter.h"

namespace coppice {

/// What a drafter may be built from. A draft model is loaded by the caller, who owns it.
struct MethodParts {
  const Model* target = nullptr;
  const Tokenizer* tokenizer = nullptr;
  Backend* backend = nullptr;
  const Model* draft_model = nullptr;
  const Tokenizer* draft_tokenizer = nullptr;
  int sequences = 1;  // most at once
  int context = 0;    // positions a sequence may have
};

struct MethodEntry {
  std::string_view name;
  std::string_view paper;    // "Saxena 2023"
  std::string_view summary;  // one line
  bool needs_draft_model = false;
  std::vector<OptionDoc> (*describe)();
  /// Null for the baseline. Throws Error for options out of range.
  std::unique_ptr<Drafter> (*make)(const OptionMap& options, const MethodParts& parts);
  std::string_view rule = "";   // where none is asked for; "": greedy or coupled, by temperature
  std::string_view parts = "";  // its option that lists the methods it is made of; "": none
};

}  // namespace coppice
