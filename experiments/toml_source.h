// TOML text as flat tables of options, each entry with its file and line, and the overrides of a
// command line. Values are booleans, integers, numbers, texts and lists of one kind of these
// (a list of lists is a list of their texts, for the axes of a sweep).
// A table inside a table ([method.part], or part.key = VALUE) gives entries `part.key`.
//
//   ConfigTables tables = read_toml("configs/quickstart.toml");
//   Override seed = parse_override("bench.seed=7");
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"

namespace coppice {

struct ConfigTable {
  std::string name;   // "sampling"; "" for keys before the first table
  std::string place;  // "quickstart.toml:4"
  OptionMap entries;  // in file order
};
/// In file order; `[[method]]` gives one table an element, all of one name.
using ConfigTables = std::vector<ConfigTable>;

/// Throws Error "name:line: what; remedy" for what is not TOML, deeper tables, dates, mixed lists.
ConfigTables parse_toml(std::string_view text, std::string_view name);
/// The same for a file; a file that cannot be read, or is no config by its size, is an Error too.
/// Messages and places name the file without its folders.
ConfigTables read_toml(const std::filesystem::path& path);

/// `table.key=VALUE`, or `table.label.key=VALUE` for one of several tables of a name.
struct Override {
  std::string table, label, key;
  OptionValue value;
  std::string place;  // "--set bench.seed"
};
/// VALUE is TOML; what is not TOML is taken for a text without quotes. Throws Error when `=` or the
/// table's name is missing.
Override parse_override(std::string_view assignment);

/// VALUE alone, by the same rule: "3", "[1, 2]", "coupled".
OptionValue parse_value(std::string_view text);

}  // namespace coppice
