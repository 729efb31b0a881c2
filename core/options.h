// One visit of a config struct gives parsing, defaults, help, validation and the manifest.
//
//   struct PromptLookupOptions {
//     int draft_length = 10;
//     template <class V> void visit(V& v) {
//       v("draft_length", draft_length, "tokens proposed a step", Range{1, 64});
//     }
//   };
//   auto options = read_options<PromptLookupOptions>(map, "methods/pld.toml [method]");
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/base/error.h"

namespace coppice {

struct Range {
  double low, high;  // both included
};
/// Allowed words of a text option.
struct OneOf {
  std::vector<std::string_view> words;
};

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;
struct OptionEntry {
  std::string key;
  OptionValue value;
  std::string place;  // "file.toml:12" or "--set", for messages
};
using OptionMap = std::vector<OptionEntry>;

struct OptionDoc {
  std::string key, type, default_value, range, help;
};

/// Fills every field that the map names. Throws Error for an unknown key (naming the nearest valid
/// one), a value of another type, one outside its range, or a key given twice.
template <class Options>
Options read_options(const OptionMap& map, std::string_view place);
template <class Options>
std::vector<OptionDoc> describe_options();
/// Every field with the value it has: what a manifest holds.
template <class Options>
OptionMap dump_options(const Options& options);

}  // namespace coppice
