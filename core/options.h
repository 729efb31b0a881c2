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
#include <span>
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

/// An integer within `range`, or one of the words that stand for an integer outside it.
struct Named {
  struct Word {
    std::string_view word;
    int value;
  };
  Range range;
  std::vector<Word> words;
};

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;
struct OptionEntry {
  std::string key;
  OptionValue value;
  std::string place;  // "file.toml:12" or "--set", for messages
};
using OptionMap = std::vector<OptionEntry>;

struct NoOptions {
  template <class Visitor>
  void visit(Visitor&) {}
};

struct OptionDoc {
  std::string key, type, default_value, range, help;
};
/// The type of a Named field.
inline constexpr std::string_view kIntegerOrWord = "integer or word";

/// Fills every field that the map names. Throws Error for an unknown key (naming the nearest valid
/// one), a value of another type, one outside its range, or a key given twice. Fields are bool,
/// int, uint32_t, uint64_t, float, double, std::string, or vectors of int, double, std::string
/// (where one text stands for a list of one). `place` stands in where an entry has none.
template <class Options>
Options read_options(const OptionMap& map, std::string_view place);
template <class Options>
std::vector<OptionDoc> describe_options();
/// Every field with the value it has: what a manifest holds.
template <class Options>
OptionMap dump_options(const Options& options);

/// Takes the entries `table.key` out of the map and returns them as `key`.
OptionMap take_table(OptionMap& map, std::string_view table);
/// The docs as a table `table` of a larger struct shows them: `table.key`.
std::vector<OptionDoc> docs_in_table(std::vector<OptionDoc> docs, std::string_view table);

/// Throws Error for a key that is not among `valid` (naming the nearest) or is given twice.
void check_keys(const OptionMap& map, std::span<const OptionDoc> valid, std::string_view place);
/// The nearest of `words` by edit distance, "" when none is near enough to be meant.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> words);
/// "; did you mean 'x'?" or "; there are: a, b": the remedy for an unknown word.
std::string suggest_word(std::string_view word, std::span<const std::string_view> words);
/// A value as a config file writes it: true, 3, 0.5, "text", [1, 2].
std::string option_text(const OptionValue& value);
/// The double that prints as the float does: 0.1f gives 0.1.
double shortest_double(float value);

}  // namespace coppice

#include "core/options_visit.h"
