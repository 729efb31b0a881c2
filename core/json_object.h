// An object of a JSON file, read key by key with errors that name the file, the key with those it
// stands under, and what was expected. As in Python's readers of these files, null counts as
// absent.
//
//   const JsonObject config = JsonObject::read("model/config.json", "a model's config");
//   int layers = config.integer("num_hidden_layers", 1, 1024);
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace coppice {

class JsonObject {
 public:
  /// `what` the file should be, for messages. Throws Error when it cannot be opened, is above
  /// 1 GiB, is no JSON or no object.
  static JsonObject read(const std::filesystem::path& path, std::string_view what);
  /// The same from text.
  static JsonObject parse(std::string file, std::string_view text);

  const std::string& file() const { return file_; }
  const nlohmann::json& value() const { return *json_; }
  /// "'rope_scaling.factor'", for messages.
  std::string name(std::string_view key) const;

  /// Null when the key is absent or null.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// These throw Error when the value is of another type or outside [low, high] or (0, most], and
  /// those without a fallback when it is absent.
  int integer(std::string_view key, int64_t low, int64_t high) const;
  int integer_or(std::string_view key, int64_t low, int64_t high, int64_t fallback) const;
  double positive(std::string_view key, double most, std::optional<double> fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view fallback) const;
  std::optional<JsonObject> object(std::string_view key) const;
  const nlohmann::json* array(std::string_view key) const;  // null when absent
  /// Element `index` of the array at `key`; Error when it is no object.
  JsonObject element(std::string_view key, size_t index) const;

  /// Throws Error: the key's value, and what was `expected`.
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  JsonObject(std::string file, std::string prefix, std::shared_ptr<const nlohmann::json> json)
      : file_(std::move(file)), prefix_(std::move(prefix)), json_(std::move(json)) {}

  std::string file_;
  std::string prefix_;  // of keys, in messages: "rope_scaling."
  std::shared_ptr<const nlohmann::json> json_;
};

/// A value in a message: a scalar as it stands, else "an array", "an object".
std::string shown(const nlohmann::json& value);

}  // namespace coppice
