// The mapped file and the checked look-ups. What the bytes say is read in gguf_parse.cpp.
// Source: the GGUF specification (ggml).
//
//   GgufFile file("model.gguf");
//   double base = file.real_or("llama.rope.freq_base", 10000.0);
#include "core/gguf.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

/// In the order of GgufValue's alternatives.
constexpr std::string_view kTypeNames[] = {"an unsigned integer",
                                           "a signed integer",
                                           "a real number",
                                           "a boolean",
                                           "a text",
                                           "an array of unsigned integers",
                                           "an array of signed integers",
                                           "an array of real numbers",
                                           "an array of booleans",
                                           "an array of texts"};
static_assert(std::size(kTypeNames) == std::variant_size_v<GgufValue>);

[[noreturn]] void wrong_type(const std::string& file, std::string_view key, const GgufValue* value,
                             std::string_view expected) {
  if (value == nullptr)
    throw Error("{}: key {} is missing; expected {}", file, quote(key), expected);
  throw Error("{}: key {} is {}; expected {}", file, quote(key), kTypeNames[value->index()],
              expected);
}

}  // namespace

GgufFile::GgufFile(const std::filesystem::path& path)
    : mapping_(std::make_unique<MappedFile>(path.string(), "a GGUF model")),
      name_(path.string()),
      image_(mapping_->image()) {
  mapping_->read_ahead();  // packing reads each weight once, about in the file's order
  parse();
}

GgufFile::GgufFile(std::string name, std::span<const std::byte> image)
    : name_(std::move(name)), image_(image) {
  parse();
}

GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(std::string(key));
  return found == key_index_.end() ? nullptr : &metadata_[found->second].second;
}

int64_t GgufFile::integer(std::string_view key, int64_t low, int64_t high) const {
  const GgufValue* value = find(key);
  const auto expected = [&] {
    return low == high ? fmt::format("{}", low)
                       : fmt::format("an integer from {} to {}", low, high);
  };
  if (value != nullptr) {
    if (const auto* u = std::get_if<uint64_t>(value)) {
      if (std::cmp_greater_equal(*u, low) && std::cmp_less_equal(*u, high)) {
        return static_cast<int64_t>(*u);
      }
      throw Error("{}: key {} is {}; expected {}", name_, quote(key), *u, expected());
    }
    if (const auto* i = std::get_if<int64_t>(value)) {
      if (*i >= low && *i <= high) return *i;
      throw Error("{}: key {} is {}; expected {}", name_, quote(key), *i, expected());
    }
  }
  wrong_type(name_, key, value, expected());
}

int64_t GgufFile::integer_or(std::string_view key, int64_t low, int64_t high,
                             int64_t fallback) const {
  return find(key) == nullptr ? fallback : integer(key, low, high);
}

double GgufFile::real(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* real = value == nullptr ? nullptr : std::get_if<double>(value);
  if (real == nullptr) wrong_type(name_, key, value, "a real number");
  if (!std::isfinite(*real)) {
    throw Error("{}: key {} is {}; expected a finite number", name_, quote(key), *real);
  }
  return *real;
}

double GgufFile::real_or(std::string_view key, double fallback) const {
  return find(key) == nullptr ? fallback : real(key);
}

bool GgufFile::boolean_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  const auto* boolean = std::get_if<bool>(value);
  if (boolean == nullptr) wrong_type(name_, key, value, "a boolean");
  return *boolean;
}

const std::string& GgufFile::text(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) wrong_type(name_, key, value, "a text");
  return *text;
}

const std::vector<std::string>& GgufFile::texts(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* texts = value == nullptr ? nullptr : std::get_if<std::vector<std::string>>(value);
  if (texts == nullptr) wrong_type(name_, key, value, "an array of texts");
  return *texts;
}

std::vector<int64_t> GgufFile::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* integers = std::get_if<std::vector<int64_t>>(value)) return *integers;
    if (const auto* naturals = std::get_if<std::vector<uint64_t>>(value)) {
      for (const uint64_t n : *naturals) {
        if (!std::in_range<int64_t>(n)) {
          throw Error("{}: key {} holds {}; expected integers of 63 bits", name_, quote(key), n);
        }
      }
      return {naturals->begin(), naturals->end()};
    }
  }
  wrong_type(name_, key, value, "an array of integers");
}

std::vector<float> GgufFile::reals(std::string_view key) const {
  const GgufValue* value = find(key);
  const auto* reals = value == nullptr ? nullptr : std::get_if<std::vector<double>>(value);
  if (reals == nullptr) wrong_type(name_, key, value, "an array of real numbers");
  std::vector<float> floats;
  floats.reserve(reals->size());
  for (const double real : *reals) {
    if (!(std::abs(real) <= std::numeric_limits<float>::max())) {
      throw Error("{}: key {} holds {}; expected finite numbers", name_, quote(key), real);
    }
    floats.push_back(static_cast<float>(real));
  }
  return floats;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(std::string(name));
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& GgufFile::tensor(std::string_view name) const {
  const GgufTensor* found = find_tensor(name);
  if (found == nullptr) throw Error("{}: tensor {} is missing", name_, quote(name));
  if (mapping_ && !mapping_->whole()) {
    throw Failure("{}: the file was cut while it was open", name_);
  }
  return *found;
}

}  // namespace coppice
