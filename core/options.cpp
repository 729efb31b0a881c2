// See options.h.
#include "core/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/quote.h"

namespace coppice {
namespace {

constexpr size_t kLongestWord = 64;  // longer ones are compared with nothing

/// Levenshtein distance with adjacent swaps (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] = std::min(
          {cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

struct TypeName {
  std::string_view operator()(bool) const { return "true or false"; }
  std::string_view operator()(int64_t) const { return "integer"; }
  std::string_view operator()(double) const { return "number"; }
  std::string_view operator()(const std::string&) const { return "text"; }
  std::string_view operator()(const std::vector<int64_t>&) const { return "list of integers"; }
  std::string_view operator()(const std::vector<double>&) const { return "list of numbers"; }
  std::string_view operator()(const std::vector<std::string>&) const { return "list of texts"; }
};

/// Keeps a double apart from an integer: 3.0, not 3.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string words_text(const Named& allowed) {
  std::vector<std::string_view> words;
  for (const Named::Word& word : allowed.words) words.push_back(word.word);
  return fmt::format("{}", fmt::join(words, " | "));
}

bool is_empty_list(const OptionValue& value) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return false;
        } else {
          return v.empty();
        }
      },
      value);
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> words) {
  std::string_view nearest;
  if (word.size() > kLongestWord) return nearest;
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : words) {
    const size_t distance = edit_distance(word, candidate);
    // A distance as long as the word itself is a replacement of everything.
    if (distance < best && distance < std::max(word.size(), candidate.size())) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string suggest_word(std::string_view word, std::span<const std::string_view> words) {
  const std::string_view nearest = nearest_word(word, words);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  return fmt::format("; there are: {}", fmt::join(words, ", "));
}

double shortest_double(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof(text), value);
  double out = 0.0;
  std::from_chars(text, written.ptr, out);
  return out;
}

std::string option_text(const OptionValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return fmt::format("\"{}\"", v);
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return v.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(v, "\", \""));
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(v);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          std::vector<std::string> numbers;
          for (const double number : v) numbers.push_back(number_text(number));
          return fmt::format("[{}]", fmt::join(numbers, ", "));
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", v);
        } else {
          return fmt::format("[{}]", fmt::join(v, ", "));
        }
      },
      value);
}

OptionMap take_table(OptionMap& map, std::string_view table) {
  const std::string prefix = fmt::format("{}.", table);
  OptionMap taken, left;
  for (OptionEntry& entry : map) {
    const bool inside = entry.key.starts_with(prefix);
    if (inside) entry.key.erase(0, prefix.size());
    (inside ? taken : left).push_back(std::move(entry));
  }
  map = std::move(left);
  return taken;
}

std::vector<OptionDoc> docs_in_table(std::vector<OptionDoc> docs, std::string_view table) {
  for (OptionDoc& doc : docs) doc.key = fmt::format("{}.{}", table, doc.key);
  return docs;
}

void check_keys(const OptionMap& map, std::span<const OptionDoc> valid, std::string_view place) {
  std::vector<std::string_view> keys;
  for (const OptionDoc& doc : valid) keys.push_back(doc.key);
  for (size_t i = 0; i < map.size(); ++i) {
    const std::string_view at = map[i].place.empty() ? place : std::string_view(map[i].place);
    if (std::find(keys.begin(), keys.end(), map[i].key) == keys.end()) {
      throw Error("{}: {}: unknown key{}", at, quote(map[i].key), suggest_word(map[i].key, keys));
    }
    for (size_t j = 0; j < i; ++j) {
      if (map[j].key == map[i].key) {
        throw Error("{}: {}: given twice; remove one", at, map[i].key);
      }
    }
  }
}

const OptionEntry* OptionReader::find(std::string_view key) const {
  for (const OptionEntry& entry : map_) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

std::string_view OptionReader::place_of(const OptionEntry& entry) const {
  return entry.place.empty() ? place_ : std::string_view(entry.place);
}

void OptionReader::wrong_type(const OptionEntry& entry, std::string_view expected) const {
  const std::string* word = std::get_if<std::string>(&entry.value);
  throw Error("{}: {}: is {}; give {}", place_of(entry), entry.key,
              quote(word != nullptr ? *word : option_text(entry.value)), expected);
}

void OptionReader::check_range(const OptionEntry& entry, double value, Range range) const {
  if (!(value >= range.low && value <= range.high)) {  // NaN is in no range
    throw Error("{}: {}: is {}; give a value in {}..{}", place_of(entry), entry.key, value,
                range.low, range.high);
  }
}

void OptionReader::operator()(std::string_view key, std::string& field, std::string_view,
                              const OneOf& allowed) {
  const OptionEntry* entry = find(key);
  if (entry == nullptr) return;
  const std::string& word = text(*entry);
  if (std::find(allowed.words.begin(), allowed.words.end(), word) == allowed.words.end()) {
    throw Error("{}: {}: is {}; give one of: {}", place_of(*entry), key, quote(word),
                fmt::join(allowed.words, ", "));
  }
  field = word;
}

void OptionReader::operator()(std::string_view key, int& field, std::string_view,
                              const Named& allowed) {
  const OptionEntry* entry = find(key);
  if (entry == nullptr) return;
  if (std::holds_alternative<int64_t>(entry->value)) {
    field = static_cast<int>(integer(*entry, allowed.range));
    return;
  }
  const std::string* given = std::get_if<std::string>(&entry->value);
  for (const Named::Word& word : allowed.words) {
    if (given == nullptr || *given != word.word) continue;
    field = word.value;
    return;
  }
  wrong_type(*entry, fmt::format("an integer or one of: {}", words_text(allowed)));
}

OptionValue named_value(int value, const Named& allowed) {
  for (const Named::Word& word : allowed.words) {
    if (word.value == value) return std::string(word.word);
  }
  return static_cast<int64_t>(value);
}

bool OptionReader::boolean(const OptionEntry& entry) const {
  if (const bool* value = std::get_if<bool>(&entry.value)) return *value;
  wrong_type(entry, "true or false");
}

int64_t OptionReader::integer(const OptionEntry& entry, Range range) const {
  const int64_t* value = std::get_if<int64_t>(&entry.value);
  if (value == nullptr) wrong_type(entry, "an integer");
  check_range(entry, static_cast<double>(*value), range);
  return *value;
}

double OptionReader::real(const OptionEntry& entry, Range range) const {
  double value = 0.0;
  if (const double* number = std::get_if<double>(&entry.value)) {
    value = *number;
  } else if (const int64_t* whole = std::get_if<int64_t>(&entry.value)) {
    value = static_cast<double>(*whole);
  } else {
    wrong_type(entry, "a number");
  }
  if (!std::isfinite(value)) wrong_type(entry, "a finite number");
  check_range(entry, value, range);
  return value;
}

const std::string& OptionReader::text(const OptionEntry& entry) const {
  if (const std::string* value = std::get_if<std::string>(&entry.value)) return *value;
  wrong_type(entry, "text");
}

std::vector<int64_t> OptionReader::integers(const OptionEntry& entry, Range range) const {
  if (is_empty_list(entry.value)) return {};
  const auto* values = std::get_if<std::vector<int64_t>>(&entry.value);
  if (values == nullptr) wrong_type(entry, "a list of integers");
  for (const int64_t value : *values) check_range(entry, static_cast<double>(value), range);
  return *values;
}

std::vector<double> OptionReader::reals(const OptionEntry& entry, Range range) const {
  if (is_empty_list(entry.value)) return {};
  std::vector<double> out;
  if (const auto* values = std::get_if<std::vector<double>>(&entry.value)) {
    out = *values;
  } else if (const auto* whole = std::get_if<std::vector<int64_t>>(&entry.value)) {
    out.assign(whole->begin(), whole->end());
  } else {
    wrong_type(entry, "a list of numbers");
  }
  for (const double value : out) {
    if (!std::isfinite(value)) wrong_type(entry, "finite numbers");
    check_range(entry, value, range);
  }
  return out;
}

std::vector<std::string> OptionReader::texts(const OptionEntry& entry) const {
  if (is_empty_list(entry.value)) return {};
  if (const auto* values = std::get_if<std::vector<std::string>>(&entry.value)) return *values;
  if (const auto* single = std::get_if<std::string>(&entry.value)) return {*single};
  wrong_type(entry, "a list of texts");
}

std::string OptionDescriber::range_text(Range range) {
  return fmt::format("{}..{}", range.low, range.high);
}

void OptionDescriber::operator()(std::string_view key, const std::string& field,
                                 std::string_view help, const OneOf& allowed) {
  add(key, field, fmt::format("{}", fmt::join(allowed.words, " | ")), help);
}

void OptionDescriber::operator()(std::string_view key, const int& field, std::string_view help,
                                 const Named& allowed) {
  add(key, named_value(field, allowed),
      fmt::format("{} | {}", words_text(allowed), range_text(allowed.range)), help);
  docs.back().type = kIntegerOrWord;
}

void OptionDescriber::add(std::string_view key, const OptionValue& value, std::string range,
                          std::string_view help) {
  docs.push_back({std::string(key), std::string(std::visit(TypeName{}, value)), option_text(value),
                  std::move(range), std::string(help)});
}

}  // namespace coppice
