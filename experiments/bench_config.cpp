// See bench_config.h.
#include "experiments/bench_config.h"

#include <algorithm>

#include "core/quote.h"
#include "drafters/methods.h"
#include "experiments/config_json.h"
#include "experiments/model_files.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSections[] = {"model", "bench", "sampling", "method"};

const OptionEntry* find_entry(const OptionMap& map, std::string_view key) {
  const auto at = std::find_if(map.begin(), map.end(),
                               [&](const OptionEntry& entry) { return entry.key == key; });
  return at == map.end() ? nullptr : &*at;
}

void set_entry(OptionMap& map, OptionEntry entry) {
  const auto at = std::find_if(map.begin(), map.end(),
                               [&](const OptionEntry& old) { return old.key == entry.key; });
  if (at == map.end()) {
    map.push_back(std::move(entry));
  } else {
    *at = std::move(entry);
  }
}

void check_section(const ConfigTable& table) {
  if (table.name.empty()) {
    const OptionEntry& entry = table.entries.front();
    throw Error(
        "{}: {}: stands before the first table; put it under [model], [bench], [sampling] "
        "or [[method]]",
        entry.place, quote(entry.key));
  }
  if (table.name == "sweep") {
    throw Error("{}: sweep: is for `coppice bench` alone; give a config without it", table.place);
  }
  if (std::find(std::begin(kSections), std::end(kSections), table.name) == std::end(kSections)) {
    throw Error("{}: {}: unknown table{}", table.place, quote(table.name),
                suggest_word(table.name, kSections));
  }
}

/// The options of the one [method] table that a method file holds.
OptionMap read_method_file(const fs::path& path) {
  ConfigTables tables = read_toml(path);
  if (tables.size() != 1 || tables[0].name != "method") {
    throw Error("{}: a method file holds one [method] table and nothing else",
                path.filename().string());
  }
  return std::move(tables[0].entries);
}

/// Replaces `use = FILE` by the file's options; those of the table itself win.
void expand_use(ConfigTable& table, const fs::path& folder) {
  const OptionEntry* use = find_entry(table.entries, "use");
  if (use == nullptr) return;
  const std::string* name = std::get_if<std::string>(&use->value);
  const auto path = name != nullptr ? find_beside(*name, folder) : std::nullopt;
  if (!path) {
    throw Error("{}: use: {} is no method file; give one such as \"configs/methods/jacobi.toml\"",
                use->place, quote(name != nullptr ? *name : option_text(use->value)));
  }
  OptionMap merged = read_method_file(*path);
  for (const OptionEntry& entry : table.entries) {
    if (entry.key != "use") set_entry(merged, entry);
  }
  table.entries = std::move(merged);
}

/// What `--set method.LABEL.key` calls a method by: its name, else its method.
std::string label_of(const ConfigTable& table) {
  for (const std::string_view key : {"name", "method"}) {
    const OptionEntry* entry = find_entry(table.entries, key);
    const std::string* text = entry != nullptr ? std::get_if<std::string>(&entry->value) : nullptr;
    if (text != nullptr && !text->empty()) return *text;
  }
  return "";
}

/// The key that an override means in a table, "" when it means another table: in
/// method.LABEL.part.key a label ends before any dot.
std::string key_in(const ConfigTable& table, const Override& change) {
  if (table.name != change.table) return "";
  if (change.label.empty() || change.label == label_of(table)) return change.key;
  const std::string prefix = label_of(table) + ".";
  const std::string path = change.label + "." + change.key;
  return path.starts_with(prefix) ? path.substr(prefix.size()) : "";
}

void apply_override(ConfigTables& tables, const Override& change) {
  bool applied = false;
  for (ConfigTable& table : tables) {
    const std::string key = key_in(table, change);
    if (key.empty()) continue;
    set_entry(table.entries, {key, change.value, change.place});
    applied = true;
  }
  if (applied) return;
  if (change.table == "method" || !change.label.empty()) {
    throw Error(
        "{}: no method is labelled {}; write --set method.LABEL.key=VALUE, or --set "
        "method.key=VALUE for all",
        change.place, quote(change.label));
  }
  tables.push_back({change.table, change.place, {{change.key, change.value, change.place}}});
  check_section(tables.back());
}

/// The one table of a name; an empty one when the config has none.
ConfigTable only_table(const ConfigTables& tables, std::string_view name) {
  ConfigTable found{std::string(name), "", {}};
  for (const ConfigTable& table : tables) {
    if (table.name != name) continue;
    if (!found.place.empty()) {
      throw Error("{}: {}: a second table of this name; merge the two", table.place, name);
    }
    found = table;
  }
  return found;
}

template <class Options>
Options read_table(const ConfigTables& tables, std::string_view name) {
  const ConfigTable table = only_table(tables, name);
  return read_options<Options>(table.entries, table.place);
}

void check_rule(std::string_view rule, float temperature, std::string_view place) {
  const auto names = rule_names();
  if (std::find(names.begin(), names.end(), rule) == names.end()) {
    throw Error("{}: rule: {} is unknown{}", place, quote(rule), suggest_word(rule, names));
  }
  if (rule == "greedy" && temperature > 0.0f) {
    throw Error("{}: rule: greedy takes no notice of temperature {}; use coupled or rejection",
                place, temperature);
  }
}

MethodConfig make_method(const OptionMap& options, std::string_view place, float temperature) {
  const std::vector<OptionDoc> common = describe_options<MethodOptions>();
  OptionMap shared, own;
  for (const OptionEntry& entry : options) {
    const bool is_common = std::any_of(common.begin(), common.end(),
                                       [&](const OptionDoc& doc) { return doc.key == entry.key; });
    (is_common ? shared : own).push_back(entry);
  }
  MethodOptions read = read_options<MethodOptions>(shared, place);
  if (read.method.empty()) {
    throw Error("{}: method: is missing; name one that `coppice methods` lists", place);
  }
  const MethodEntry* method = nullptr;
  try {
    method = &find_method(read.method);
  } catch (const Error& error) {
    throw Error("{}: method: {}", place, error.what());
  }
  if (read.rule.empty()) read.rule = default_rule(*method, temperature);
  check_rule(read.rule, temperature, place);
  // With the shared keys too, so that `rul` is answered with `rule`.
  std::vector<OptionDoc> valid = valid_options(*method, own, read.rule);
  valid.insert(valid.end(), common.begin(), common.end());
  check_keys(options, valid, place);

  if (read.name.empty()) read.name = read.method;
  OptionMap of_rule = take_table(own, read.rule);
  return {read.name, {read.method, read.rule, read.budget, std::move(own), std::move(of_rule)}};
}

/// Labels stand in tables and in paths of overrides.
void check_label(const MethodConfig& method, std::span<const MethodConfig> before,
                 std::string_view place) {
  const bool plain = std::all_of(method.name.begin(), method.name.end(), [](unsigned char c) {
    return c >= 0x20 && c != 0x7f && c != '|' && c != '=';
  });
  if (!plain || method.name.size() > 64 || method.name == kBaselineName) {
    throw Error("{}: name: {} cannot be a label; give up to 64 characters without | and =", place,
                quote(method.name));
  }
  for (const MethodConfig& other : before) {
    if (other.name == method.name) {
      throw Error("{}: name: a second method is called {}; give each its own `name`", place,
                  quote(method.name));
    }
  }
}

/// Leaves the methods that bench.methods names; the list itself has then done its work.
void keep_methods(BenchConfig& config) {
  std::vector<std::string>& wanted = config.bench.methods;
  if (wanted.empty()) return;
  std::vector<std::string_view> labels;
  for (const MethodConfig& method : config.methods) labels.push_back(method.name);
  for (const std::string& name : wanted) {
    if (std::find(labels.begin(), labels.end(), name) != labels.end()) continue;
    throw Error("bench.methods: no method is labelled {}{}", quote(name),
                suggest_word(name, labels));
  }
  std::erase_if(config.methods, [&](const MethodConfig& method) {
    return std::find(wanted.begin(), wanted.end(), method.name) == wanted.end();
  });
  wanted.clear();
}

OptionMap with_defaults(const std::vector<OptionDoc>& docs, const OptionMap& options) {
  OptionMap out;
  for (const OptionDoc& doc : docs) {
    const OptionEntry* given = find_entry(options, doc.key);
    out.push_back({doc.key, given != nullptr ? given->value : parse_value(doc.default_value), ""});
  }
  return out;
}

/// Options of the method and, as `rule.key`, of the rule, every default written out.
OptionMap dump_spec(const MethodSpec& spec) {
  OptionMap out = with_defaults(options_of(find_method(spec.method), spec.options), spec.options);
  for (OptionEntry& entry : with_defaults(find_rule(spec.rule).describe(), spec.rule_options)) {
    entry.key = fmt::format("{}.{}", spec.rule, entry.key);
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

BenchConfig make_bench_config(ConfigTables tables, std::span<const std::string> overrides,
                              std::string_view name, const fs::path& folder) {
  std::vector<Override> read;
  for (const std::string& text : overrides) read.push_back(parse_override(text));
  return resolve_bench_config(std::move(tables), read, name, folder);
}

BenchConfig resolve_bench_config(ConfigTables tables, std::span<const Override> overrides,
                                 std::string_view name, const fs::path& folder) {
  for (ConfigTable& table : tables) {
    check_section(table);
    if (table.name == "method") expand_use(table, folder);
  }
  for (const Override& change : overrides) apply_override(tables, change);

  BenchConfig config;
  config.folder = folder;
  config.model = read_table<ModelOptions>(tables, "model");
  config.bench = read_table<BenchOptions>(tables, "bench");
  config.sampling = read_table<SamplingOptions>(tables, "sampling");
  config.sampling.params();  // checks the biases
  if (config.bench.name.empty()) config.bench.name = name;

  for (const ConfigTable& table : tables) {
    if (table.name != "method") continue;
    MethodConfig method =
        make_method(table.entries, table.place, config.sampling.values.temperature);
    check_label(method, config.methods, table.place);
    config.methods.push_back(std::move(method));
  }
  keep_methods(config);
  if (config.methods.empty()) {
    throw Error("{}: no [[method]] table; add one, for example method = \"prompt_lookup\"", name);
  }
  return config;
}

ConfigTables read_config_tables(const fs::path& path) {
  return path.extension() == ".json" ? read_manifest_config(path) : read_toml(path);
}

BenchConfig read_bench_config(const fs::path& path, std::span<const std::string> overrides) {
  return make_bench_config(read_config_tables(path), overrides, path.stem().string(),
                           path.parent_path());
}

ConfigTables dump_bench_config(const BenchConfig& config) {
  ConfigTables tables = {{"model", "", dump_options(config.model)},
                         {"bench", "", dump_options(config.bench)},
                         {"sampling", "", dump_options(config.sampling)}};
  for (const MethodConfig& method : config.methods) {
    MethodOptions common{method.name, method.spec.method, method.spec.rule, method.spec.budget};
    OptionMap entries = dump_options(common);
    for (OptionEntry& entry : dump_spec(method.spec)) entries.push_back(std::move(entry));
    tables.push_back({"method", "", std::move(entries)});
  }
  return tables;
}

std::vector<OptionDoc> valid_options(const MethodEntry& method, const OptionMap& given,
                                     std::string_view rule) {
  std::vector<OptionDoc> docs = options_of(method, given);
  const auto of_rule = docs_in_table(find_rule(rule).describe(), rule);
  docs.insert(docs.end(), of_rule.begin(), of_rule.end());
  return docs;
}

MethodConfig read_method(std::string_view name_or_file, float temperature) {
  const fs::path path(name_or_file);
  if (path.extension() == ".toml") {
    return make_method(read_method_file(path), path.filename().string(), temperature);
  }
  return make_method({{"method", std::string(name_or_file), "--method"}}, "--method", temperature);
}

}  // namespace coppice
