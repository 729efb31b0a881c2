// See config_json.h.
#include "experiments/config_json.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/quote.h"

namespace coppice {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class T>
std::vector<T> list_of(const json& value) {
  std::vector<T> out;
  for (const json& element : value) out.push_back(element.get<T>());
  return out;
}

OptionValue to_option_value(const json& value, std::string_view key, std::string_view place) {
  const auto all = [&](auto is) { return std::all_of(value.begin(), value.end(), is); };
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    if (all([](const json& e) { return e.is_string(); })) return list_of<std::string>(value);
    if (all([](const json& e) { return e.is_number_integer(); })) return list_of<int64_t>(value);
    if (all([](const json& e) { return e.is_number(); })) return list_of<double>(value);
  }
  throw Error("{}: {}: a value that no config has; use the manifest of a run", place, quote(key));
}

OptionMap to_entries(const json& table, std::string_view place) {
  if (!table.is_object())
    throw Error("{}: config: a table is missing; use a run's manifest", place);
  OptionMap entries;
  for (const auto& item : table.items()) {
    entries.push_back(
        {item.key(), to_option_value(item.value(), item.key(), place), std::string(place)});
  }
  return entries;
}

}  // namespace

ordered_json config_to_json(const ConfigTables& tables) {
  ordered_json out;
  for (const ConfigTable& table : tables) {
    ordered_json entries = ordered_json::object();
    for (const OptionEntry& entry : table.entries) {
      entries[entry.key] = std::visit([](const auto& v) { return ordered_json(v); }, entry.value);
    }
    if (table.name == "method") {
      out[table.name].push_back(std::move(entries));
    } else {
      out[table.name] = std::move(entries);
    }
  }
  return out;
}

ConfigTables read_manifest_config(const std::filesystem::path& path) {
  const std::string place = path.filename().string();
  std::ifstream in(path);
  if (!in) throw Error("{}: cannot be read; give a config or a run's manifest.json", path.string());
  const json manifest = json::parse(in, nullptr, false);
  if (!manifest.is_object() || !manifest.contains("config") || !manifest["config"].is_object()) {
    throw Error("{}: holds no config; give the manifest.json of a run", place);
  }
  ConfigTables tables;
  for (const auto& item : manifest["config"].items()) {
    if (item.value().is_array()) {
      for (const json& table : item.value()) {
        tables.push_back({item.key(), place, to_entries(table, place)});
      }
    } else {
      tables.push_back({item.key(), place, to_entries(item.value(), place)});
    }
  }
  return tables;
}

}  // namespace coppice
