// The visitors behind options.h: each is called once for every field of an options struct, with the
// key, the field, a help line and at most one constraint (Range or OneOf).
//
//   OptionReader reader(map, docs, place);
//   options.visit(reader);
#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

#include "core/options.h"

namespace coppice {

/// A field and OptionValue hold the same things; only the widths of numbers differ.
template <class Field>
OptionValue to_option_value(const Field& field) {
  if constexpr (std::same_as<Field, bool> || std::same_as<Field, std::string>) {
    return field;
  } else if constexpr (std::integral<Field>) {
    return static_cast<int64_t>(field);
  } else if constexpr (std::same_as<Field, float>) {
    return shortest_double(field);
  } else if constexpr (std::same_as<Field, double>) {
    return field;
  } else if constexpr (std::same_as<Field, std::vector<int>>) {
    return std::vector<int64_t>(field.begin(), field.end());
  } else {
    static_assert(std::same_as<Field, std::vector<double>> ||
                  std::same_as<Field, std::vector<std::string>>);
    return field;
  }
}

/// The word that stands for the value, else the value.
OptionValue named_value(int value, const Named& allowed);

class OptionReader {
 public:
  /// Throws Error as check_keys() does.
  OptionReader(const OptionMap& map, std::span<const OptionDoc> docs, std::string_view place)
      : map_(map), place_(place) {
    check_keys(map, docs, place);
  }

  template <class Field>
  void operator()(std::string_view key, Field& field, std::string_view /*help*/) {
    if (const OptionEntry* entry = find(key)) read(*entry, field, default_range<Field>());
  }
  template <class Field>
  void operator()(std::string_view key, Field& field, std::string_view /*help*/, Range range) {
    const Range held = default_range<Field>();
    if (const OptionEntry* entry = find(key)) {
      read(*entry, field, {std::max(range.low, held.low), std::min(range.high, held.high)});
    }
  }
  void operator()(std::string_view key, std::string& field, std::string_view /*help*/,
                  const OneOf& allowed);
  void operator()(std::string_view key, int& field, std::string_view /*help*/,
                  const Named& allowed);

 private:
  /// What an integer field can hold; any finite number for the others.
  template <class Field>
  static constexpr Range default_range() {
    if constexpr (std::same_as<Field, std::vector<int>>) {
      return default_range<int>();
    } else if constexpr (std::integral<Field>) {
      return {static_cast<double>(std::numeric_limits<Field>::min()),
              static_cast<double>(std::numeric_limits<Field>::max())};
    } else if constexpr (std::same_as<Field, float>) {
      return {-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()};
    } else {
      return {-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
    }
  }

  template <class Field>
  void read(const OptionEntry& entry, Field& field, Range range) const {
    if constexpr (std::same_as<Field, bool>) {
      field = boolean(entry);
    } else if constexpr (std::integral<Field>) {
      field = static_cast<Field>(integer(entry, range));
    } else if constexpr (std::floating_point<Field>) {
      field = static_cast<Field>(real(entry, range));
    } else if constexpr (std::same_as<Field, std::string>) {
      field = text(entry);
    } else if constexpr (std::same_as<Field, std::vector<int>>) {
      const std::vector<int64_t> values = integers(entry, range);
      field.assign(values.begin(), values.end());
    } else if constexpr (std::same_as<Field, std::vector<double>>) {
      field = reals(entry, range);
    } else {
      static_assert(std::same_as<Field, std::vector<std::string>>);
      field = texts(entry);
    }
  }

  const OptionEntry* find(std::string_view key) const;  // null when absent
  bool boolean(const OptionEntry& entry) const;
  int64_t integer(const OptionEntry& entry, Range range) const;
  double real(const OptionEntry& entry, Range range) const;
  const std::string& text(const OptionEntry& entry) const;
  std::vector<int64_t> integers(const OptionEntry& entry, Range range) const;
  std::vector<double> reals(const OptionEntry& entry, Range range) const;
  std::vector<std::string> texts(const OptionEntry& entry) const;
  [[noreturn]] void wrong_type(const OptionEntry& entry, std::string_view expected) const;
  void check_range(const OptionEntry& entry, double value, Range range) const;
  std::string_view place_of(const OptionEntry& entry) const;

  const OptionMap& map_;
  std::string_view place_;
};

class OptionDescriber {
 public:
  template <class Field>
  void operator()(std::string_view key, const Field& field, std::string_view help) {
    add(key, to_option_value(field),
        std::is_unsigned_v<Field> && !std::same_as<Field, bool> ? std::string("0 or more")
                                                                : std::string(),
        help);
  }
  template <class Field>
  void operator()(std::string_view key, const Field& field, std::string_view help, Range range) {
    add(key, to_option_value(field), range_text(range), help);
  }
  void operator()(std::string_view key, const std::string& field, std::string_view help,
                  const OneOf& allowed);
  void operator()(std::string_view key, const int& field, std::string_view help,
                  const Named& allowed);
  std::vector<OptionDoc> docs;

 private:
  static std::string range_text(Range range);
  void add(std::string_view key, const OptionValue& value, std::string range,
           std::string_view help);
};

class OptionDumper {
 public:
  template <class Field, class... Constraint>
  void operator()(std::string_view key, const Field& field, std::string_view /*help*/,
                  const Constraint&...) {
    map.push_back({std::string(key), to_option_value(field), ""});
  }
  void operator()(std::string_view key, const int& field, std::string_view /*help*/,
                  const Named& allowed) {
    map.push_back({std::string(key), named_value(field, allowed), ""});
  }
  OptionMap map;
};

template <class Options>
std::vector<OptionDoc> describe_options() {
  Options options;
  OptionDescriber describer;
  options.visit(describer);
  return std::move(describer.docs);
}

template <class Options>
Options read_options(const OptionMap& map, std::string_view place) {
  Options options;
  OptionReader reader(map, describe_options<Options>(), place);
  options.visit(reader);
  return options;
}

template <class Options>
OptionMap dump_options(const Options& options) {
  Options copy = options;  // visit() may write, so it is not const
  OptionDumper dumper;
  copy.visit(dumper);
  return std::move(dumper.map);
}

}  // namespace coppice
