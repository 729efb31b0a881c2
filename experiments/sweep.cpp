// See sweep.h.
#include "experiments/sweep.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file_hash.h"
#include "core/quote.h"
#include "experiments/config_json.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTable = "sweep";
constexpr std::string_view kMethodPath = "bench.methods";
constexpr size_t kMostCells = 100'000;
constexpr size_t kHashDigits = 12;

/// What a cell must match in every part to be left out.
struct Exclusion {
  struct Part {
    size_t axis;
    std::string value;
  };
  std::vector<Part> parts;
};

template <class Options>
bool has_key(std::string_view key) {
  const auto docs = describe_options<Options>();
  return std::any_of(docs.begin(), docs.end(),
                     [&](const OptionDoc& doc) { return doc.key == key; });
}

std::string path_of(std::string_view key) {
  if (key.find('.') != std::string_view::npos) return std::string(key);
  if (key == "method") return std::string(kMethodPath);
  if (key == "model") return "model.path";
  if (key == "draft") return "model.draft";
  if (has_key<BenchOptions>(key)) return fmt::format("bench.{}", key);
  if (has_key<SamplingOptions>(key)) return fmt::format("sampling.{}", key);
  return fmt::format("method.{}", key);
}

std::vector<std::string> texts_of(const OptionValue& value) {
  return std::visit(
      [](const auto& v) -> std::vector<std::string> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return v;
        } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return {fmt::format("{}", v)};
        } else {
          std::vector<std::string> texts;
          for (const auto& element : v) texts.push_back(fmt::format("{}", element));
          return texts;
        }
      },
      value);
}

/// Equal where --set would read the same: 1 and 1.0 stay apart, "all" and all do not.
bool same_value(const std::string& a, const std::string& b) {
  return a == b || parse_value(a) == parse_value(b);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// "KEY=VALUE and KEY=VALUE"
Exclusion read_exclusion(std::string_view text, const std::vector<SweepAxis>& axes,
                         std::string_view place) {
  constexpr std::string_view kAnd = " and ";
  Exclusion out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find(kAnd), rest.size());
    const std::string_view part = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + kAnd.size(), rest.size()));
    const size_t equals = part.find('=');
    const std::string_view key = trimmed(part.substr(0, equals));
    const auto axis = std::find_if(axes.begin(), axes.end(),
                                   [&](const SweepAxis& known) { return known.key == key; });
    if (equals == std::string_view::npos || axis == axes.end()) {
      throw Error("{}: exclude: {} names no axis; write \"AXIS=VALUE and AXIS=VALUE\"", place,
                  quote(text));
    }
    const std::string value(trimmed(part.substr(equals + 1)));
    const bool known = std::any_of(axis->values.begin(), axis->values.end(),
                                   [&](const std::string& v) { return same_value(v, value); });
    if (!known) {
      throw Error("{}: exclude: {} is no value of {}; there are: {}", place, quote(value), key,
                  fmt::join(axis->values, ", "));
    }
    out.parts.push_back({static_cast<size_t>(axis - axes.begin()), value});
  }
  if (out.parts.empty()) {
    throw Error("{}: exclude: an empty text; write \"AXIS=VALUE and AXIS=VALUE\"", place);
  }
  return out;
}

/// The [sweep] table, taken out of the config.
std::optional<ConfigTable> take_sweep_table(ConfigTables& tables) {
  std::optional<ConfigTable> found;
  for (const ConfigTable& table : tables) {
    if (table.name != kTable) continue;
    if (found) throw Error("{}: sweep: a second table of this name; merge the two", table.place);
    found = table;
  }
  std::erase_if(tables, [](const ConfigTable& table) { return table.name == kTable; });
  return found;
}

/// The overrides that are not of the sweep itself; those are set in its table.
std::vector<Override> set_axes(std::span<const std::string> texts,
                               std::optional<ConfigTable>& table) {
  std::vector<Override> others;
  for (const std::string& text : texts) {
    Override change = parse_override(text);
    if (change.table != kTable) {
      others.push_back(std::move(change));
      continue;
    }
    const std::string key =
        change.label.empty() ? change.key : fmt::format("{}.{}", change.label, change.key);
    if (!table) table = ConfigTable{std::string(kTable), change.place, {}};
    std::erase_if(table->entries, [&](const OptionEntry& entry) { return entry.key == key; });
    table->entries.push_back({key, change.value, change.place});
  }
  return others;
}

std::vector<std::vector<std::string>> combinations(const Sweep& sweep, std::string_view place) {
  std::vector<std::vector<std::string>> out;
  if (sweep.combine == "zip") {
    const size_t length = sweep.axes.front().values.size();
    for (const SweepAxis& axis : sweep.axes) {
      if (axis.values.size() == length) continue;
      throw Error("{}: {}: has {} values where {} has {}; zipped axes are of one length",
                  axis.place, quote(axis.key), axis.values.size(), quote(sweep.axes.front().key),
                  length);
    }
    for (size_t i = 0; i < length; ++i) {
      out.emplace_back();
      for (const SweepAxis& axis : sweep.axes) out.back().push_back(axis.values[i]);
    }
    return out;
  }
  out.emplace_back();
  for (const SweepAxis& axis : sweep.axes) {
    if (out.size() * axis.values.size() > kMostCells) {
      throw Error("{}: sweep: more than {} cells; give fewer values", place, kMostCells);
    }
    std::vector<std::vector<std::string>> longer;
    for (const auto& shorter : out) {
      for (const std::string& value : axis.values) {
        longer.push_back(shorter);
        longer.back().push_back(value);
      }
    }
    out = std::move(longer);
  }
  return out;
}

Override override_for(const SweepAxis& axis, const std::string& value) {
  Override change = parse_override(axis.path + "=" + value);
  if (axis.path == kMethodPath) change.value = value;  // a label, whatever it looks like
  change.place = axis.place;
  return change;
}

/// What two runs must share for one to stand for the other: all but the experiment's name.
std::string hash_of(BenchConfig config) {
  config.bench.name.clear();
  return sha256_of_text(config_to_json(dump_bench_config(config)).dump()).substr(0, kHashDigits);
}

}  // namespace

std::optional<Sweep> make_sweep(ConfigTables tables, std::span<const std::string> overrides,
                                std::string_view name, const fs::path& folder) {
  std::optional<ConfigTable> table = take_sweep_table(tables);
  const std::vector<Override> common = set_axes(overrides, table);
  if (!table) return std::nullopt;

  Sweep sweep;
  sweep.combine = "cross";
  std::vector<std::string> excluded;
  for (const OptionEntry& entry : table->entries) {
    if (entry.key == "combine") {
      sweep.combine = texts_of(entry.value).front();
      if (sweep.combine != "cross" && sweep.combine != "zip") {
        throw Error("{}: combine: is {}; give cross or zip", entry.place, quote(sweep.combine));
      }
    } else if (entry.key == "exclude") {
      excluded = texts_of(entry.value);
    } else {
      sweep.axes.push_back({entry.key, path_of(entry.key), entry.place, texts_of(entry.value)});
      if (sweep.axes.back().values.empty()) {
        throw Error("{}: {}: has no values; give a list", entry.place, quote(entry.key));
      }
    }
  }
  if (sweep.axes.empty()) {
    throw Error("{}: sweep: has no axis; give one, for example draft_length = [1, 2, 4]",
                table->place);
  }
  std::vector<Exclusion> exclusions;
  for (const std::string& text : excluded) {
    exclusions.push_back(read_exclusion(text, sweep.axes, table->place));
  }

  std::set<std::string> seen;
  for (std::vector<std::string>& values : combinations(sweep, table->place)) {
    const auto matches = [&](const Exclusion& exclusion) {
      return std::all_of(exclusion.parts.begin(), exclusion.parts.end(), [&](const auto& part) {
        return same_value(values[part.axis], part.value);
      });
    };
    if (std::any_of(exclusions.begin(), exclusions.end(), matches)) continue;
    std::vector<Override> changes = common;
    for (size_t i = 0; i < values.size(); ++i) {
      changes.push_back(override_for(sweep.axes[i], values[i]));
    }
    BenchConfig config = resolve_bench_config(tables, changes, name, folder);
    sweep.name = config.bench.name;
    std::string hash = hash_of(config);
    if (!seen.insert(hash).second) continue;
    sweep.cells.push_back({std::move(hash), std::move(values), std::move(config)});
  }
  if (sweep.cells.empty()) throw Error("{}: sweep: every cell is excluded", table->place);
  return sweep;
}

std::optional<Sweep> read_sweep(const fs::path& path, std::span<const std::string> overrides) {
  return make_sweep(read_config_tables(path), overrides, path.stem().string(), path.parent_path());
}

std::string cell_text(const Sweep& sweep, const SweepCell& cell) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < sweep.axes.size(); ++i) {
    parts.push_back(fmt::format("{}={}", sweep.axes[i].key, cell.values[i]));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace coppice
