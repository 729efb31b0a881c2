// See json_object.h.
#include "core/json_object.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using nlohmann::json;

constexpr uintmax_t kMostBytes = uintmax_t{1} << 30;

}  // namespace

std::string shown(const json& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  return value.is_string() ? quote(value.get_ref<const std::string&>()) : value.dump();
}

JsonObject JsonObject::read(const std::filesystem::path& path, std::string_view what) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {  // a FIFO must be refused, not waited for
    throw Error("{}: no such file; expected {}", path.string(), what);
  }
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMostBytes) {
    throw Error("{}: has {} bytes; expected at most {}", path.string(), bytes, kMostBytes);
  }
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("{}: cannot open it: {}", path.string(), std::strerror(errno));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return parse(path.string(), text);
}

JsonObject JsonObject::parse(std::string file, std::string_view text) {
  std::shared_ptr<json> parsed;
  try {
    parsed = std::make_shared<json>(json::parse(text));
  } catch (const json::exception& error) {
    throw Error("{}: is no JSON, or was cut: {}; fetch it again", file, escape(error.what()));
  }
  if (!parsed->is_object()) throw Error("{}: holds {}; expected an object", file, shown(*parsed));
  return {std::move(file), "", std::move(parsed)};
}

std::string JsonObject::name(std::string_view key) const {
  return quote(prefix_ + std::string(key));
}

const json* JsonObject::find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::refuse(std::string_view key, std::string_view expected) const {
  const json* value = find(key);
  if (value == nullptr)
    throw Error("{}: key {} is missing; expected {}", file_, name(key), expected);
  throw Error("{}: key {} is {}; expected {}", file_, name(key), shown(*value), expected);
}

int JsonObject::integer(std::string_view key, int64_t low, int64_t high) const {
  const json* value = find(key);
  if (value != nullptr && value->is_number_integer()) {
    // Above 2^63 a value is unsigned: too large for any bound.
    const bool huge =
        value->is_number_unsigned() && !std::in_range<int64_t>(value->get<uint64_t>());
    const auto number = huge ? INT64_MAX : value->get<int64_t>();
    if (number >= low && number <= high) return static_cast<int>(number);
  }
  refuse(key, fmt::format("an integer from {} to {}", low, high));
}

int JsonObject::integer_or(std::string_view key, int64_t low, int64_t high,
                           int64_t fallback) const {
  return has(key) ? integer(key, low, high) : static_cast<int>(fallback);
}

double JsonObject::positive(std::string_view key, double most,
                            std::optional<double> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value != nullptr && value->is_number()) {
    const double number = value->get<double>();
    // Compared as the float it becomes: a tiny double would be 0 there.
    if (static_cast<float>(number) > 0.0f && number <= most) return number;
  }
  refuse(key, fmt::format("a number above 0, at most {}", most));
}

bool JsonObject::boolean_or(std::string_view key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::string JsonObject::text(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_string()) refuse(key, "a text");
  return value->get<std::string>();
}

std::string JsonObject::text_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

std::optional<JsonObject> JsonObject::object(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(key, "an object");
  return JsonObject(file_, fmt::format("{}{}.", prefix_, key),
                    std::shared_ptr<const json>(json_, value));
}

const json* JsonObject::array(std::string_view key) const {
  const json* value = find(key);
  if (value != nullptr && !value->is_array()) refuse(key, "an array");
  return value;
}

JsonObject JsonObject::element(std::string_view key, size_t index) const {
  const json* values = array(key);
  const std::string place = fmt::format("{}{}[{}]", prefix_, key, index);
  if (values == nullptr || index >= values->size() || !(*values)[index].is_object()) {
    throw Error("{}: {} is no object; the file is damaged, fetch it again", file_, quote(place));
  }
  return JsonObject(file_, place + ".", std::shared_ptr<const json>(json_, &(*values)[index]));
}

}  // namespace coppice
