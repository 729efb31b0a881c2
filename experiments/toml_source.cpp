// See toml_source.h.
#include "experiments/toml_source.h"

#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>

#include "core/quote.h"

namespace coppice {
namespace {

constexpr size_t kLongestConfig = 64 * 1024;
// A dotted key nests one table a dot, and toml++ frees tables recursively: a bound for the stack.
constexpr std::ptrdiff_t kMostDots = 2000;

std::string place_of(std::string_view name, const toml::source_region& source) {
  return fmt::format("{}:{}", name, source.begin.line);
}

template <class T>
std::optional<std::vector<T>> list_of(const toml::array& array) {
  std::vector<T> out;
  for (const toml::node& node : array) {
    const auto value = node.value_exact<T>();
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

/// 1 and 0.5 may share a list: both are numbers.
std::optional<std::vector<double>> list_of_numbers(const toml::array& array) {
  std::vector<double> out;
  for (const toml::node& node : array) {
    if (!node.is_number()) return std::nullopt;
    out.push_back(*node.value<double>());
  }
  return out;
}

OptionValue to_option_value(const toml::node& node, std::string_view key, std::string_view place);

/// [[1, 2], [3]]: each as the text that parse_value() reads.
std::optional<std::vector<std::string>> list_of_lists(const toml::array& array,
                                                      std::string_view key,
                                                      std::string_view place) {
  std::vector<std::string> out;
  for (const toml::node& node : array) {
    const toml::array* inner = node.as_array();
    const bool flat = inner != nullptr && std::none_of(inner->begin(), inner->end(),
                                                       [](const auto& e) { return e.is_array(); });
    if (!flat) return std::nullopt;
    out.push_back(option_text(to_option_value(*inner, key, place)));
  }
  return out;
}

OptionValue to_option_value(const toml::node& node, std::string_view key, std::string_view place) {
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  if (const toml::array* array = node.as_array()) {
    if (auto texts = list_of<std::string>(*array)) return *texts;
    if (auto integers = list_of<int64_t>(*array)) return *integers;
    if (auto numbers = list_of_numbers(*array)) return *numbers;
    if (auto lists = list_of_lists(*array, key, place)) return *lists;
    throw Error("{}: {}: the list mixes kinds; give numbers only or texts only", place, quote(key));
  }
  if (node.is_table()) {
    throw Error("{}: {}: a table too deep; tables nest as far as [method.part]", place, quote(key));
  }
  throw Error("{}: {}: dates and times are not used; put it in quotes", place, quote(key));
}

/// Line and column of an entry: toml++ keeps tables sorted by key.
struct Ordered {
  toml::source_position at;
  OptionEntry entry;
};

OptionMap to_entries(const toml::table& table, std::string_view name) {
  std::vector<Ordered> found;
  const auto add = [&](const toml::key& key, const toml::node& node, std::string_view prefix) {
    const std::string place = place_of(name, key.source());
    found.push_back(
        {key.source().begin,
         {fmt::format("{}{}", prefix, key.str()), to_option_value(node, key.str(), place), place}});
  };
  for (auto&& [key, node] : table) {
    if (const toml::table* inner = node.as_table()) {  // part.key = VALUE
      const std::string prefix = fmt::format("{}.", key.str());
      for (auto&& [inner_key, inner_node] : *inner) add(inner_key, inner_node, prefix);
    } else {
      add(key, node, "");
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Ordered& a, const Ordered& b) { return a.at < b.at; });
  OptionMap entries;
  for (Ordered& item : found) entries.push_back(std::move(item.entry));
  return entries;
}

bool is_list_of_tables(const toml::node& node) {
  const toml::array* array = node.as_array();
  return array != nullptr && !array->empty() && array->is_homogeneous<toml::table>();
}

toml::table parse(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    std::string what(error.description());
    std::replace_if(
        what.begin(), what.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    throw Error("{}: {}; mend the TOML there", place_of(name, error.source()), what);
  }
}

}  // namespace

ConfigTables parse_toml(std::string_view text, std::string_view name) {
  if (text.size() > kLongestConfig) {
    throw Error("{}: {} bytes; a config has at most {}", name, text.size(), kLongestConfig);
  }
  if (std::count(text.begin(), text.end(), '.') > kMostDots) {
    throw Error("{}: more than {} dots; a config nests two levels deep", name, kMostDots);
  }
  const toml::table root = parse(text, name);
  struct OrderedTable {
    toml::source_position at;
    ConfigTable table;
  };
  std::vector<OrderedTable> found;
  toml::table loose;
  for (auto&& [key, node] : root) {
    const std::string key_text(key.str());
    if (const toml::table* table = node.as_table()) {
      found.push_back({table->source().begin,
                       {key_text, place_of(name, key.source()), to_entries(*table, name)}});
    } else if (is_list_of_tables(node)) {
      for (const toml::node& element : *node.as_array()) {
        found.push_back(
            {element.source().begin,
             {key_text, place_of(name, element.source()), to_entries(*element.as_table(), name)}});
      }
    } else {
      loose.insert(key, node);
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const OrderedTable& a, const OrderedTable& b) { return a.at < b.at; });
  ConfigTables tables;
  if (!loose.empty()) tables.push_back({"", std::string(name), to_entries(loose, name)});
  for (OrderedTable& item : found) tables.push_back(std::move(item.table));
  return tables;
}

ConfigTables read_toml(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error("{}: is a folder; give a TOML file", path.string());
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("{}: cannot be read; give a TOML file that exists", path.string());
  std::string text(kLongestConfig + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return parse_toml(text, name);
}

Override parse_override(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  const std::string_view path = assignment.substr(0, std::min(equals, assignment.size()));
  const size_t first = path.find('.');
  if (equals == std::string_view::npos || first == std::string_view::npos) {
    throw Error("--set {}: is no override; write it as --set sampling.temperature=0.8",
                quote(assignment));
  }
  const size_t last = path.rfind('.');
  Override out;
  out.table = path.substr(0, first);
  if (last > first) out.label = path.substr(first + 1, last - first - 1);
  out.key = path.substr(last + 1);
  out.place = fmt::format("--set {}", path);
  out.value = parse_value(assignment.substr(equals + 1));
  return out;
}

OptionValue parse_value(std::string_view text) {
  try {
    const toml::table table = parse(fmt::format("value = {}", text), "");
    // More than one key: the text brought lines of its own.
    if (table.size() == 1) return to_option_value(table.begin()->second, "value", "");
  } catch (const Error&) {  // no TOML
  }
  return std::string(text);
}

}  // namespace coppice
