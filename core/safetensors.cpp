// See safetensors.h.
#include "core/safetensors.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they stand");

using nlohmann::json;

constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own bound
constexpr size_t kMostDimensions = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct TypeSize {
  std::string_view name;
  uint64_t bytes;
};
constexpr TypeSize kTypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
                               {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
                               {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

uint64_t bytes_of_type(std::string_view name) {
  for (const TypeSize& type : kTypes) {
    if (type.name == name) return type.bytes;
  }
  return 0;
}

std::optional<DType> weight_type(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

/// The header as JSON; a name that stands there twice would hide a tensor, so it is refused.
json parse_header(const std::string& file, std::string_view text) {
  std::set<std::string> seen;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 3) throw Error("{}: the header is nested too deeply; expected tensors", file);
    if (event == json::parse_event_t::key && depth == 1 &&
        !seen.insert(parsed.get<std::string>()).second) {
      throw Error("{}: tensor {} occurs twice; expected it once", file,
                  quote(parsed.get<std::string>()));
    }
    return true;
  };
  try {
    json header = json::parse(text, watch);
    if (header.is_object()) return header;
  } catch (const json::exception& error) {
    throw Error("{}: the header is no JSON: {}", file, escape(error.what()));
  }
  throw Error("{}: the header is no JSON object; expected safetensors", file);
}

uint64_t natural(const std::string& place, const json& value, const char* what) {
  if (!value.is_number_unsigned()) {
    throw Error("{}: {} is {}; expected a number, 0 or more", place, what, quote(value.dump()));
  }
  return value.get<uint64_t>();
}

const json& array_in(const std::string& place, const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) {
    throw Error("{}: {} is missing or no list; the file is damaged", place, key);
  }
  return *found;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : mapping_(std::make_unique<MappedFile>(path.string(), "safetensors")), name_(path.string()) {
  image_ = mapping_->image();
  parse();
}

SafetensorsFile::SafetensorsFile(std::string name, std::span<const std::byte> image)
    : name_(std::move(name)), image_(image) {
  parse();
}

void SafetensorsFile::parse() {
  uint64_t header_bytes = 0;
  if (image_.size() < sizeof(header_bytes)) {
    throw Error("{}: the file has {} bytes; expected safetensors", name_, image_.size());
  }
  std::memcpy(&header_bytes, image_.data(), sizeof(header_bytes));
  const auto rest = image_.subspan(sizeof(header_bytes));
  if (header_bytes > std::min<uint64_t>(rest.size(), kLargestHeader)) {
    throw Error("{}: the header would have {} bytes; the file ends before that, fetch it again",
                name_, header_bytes);
  }
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  const json header = parse_header(name_, text);
  std::vector<std::pair<uint64_t, uint64_t>> offsets;
  for (const auto& [key, entry] : header.items()) {
    const std::string place = fmt::format("{}: tensor {}", name_, quote(key));
    if (!entry.is_object()) throw Error("{}: is no object; the file is damaged", place);
    if (key == kMetadata) {
      for (const auto& [name, value] : entry.items()) {
        if (!value.is_string()) throw Error("{}: {} is no text", place, quote(name));
        metadata_[name] = value.get<std::string>();
      }
      continue;
    }
    SafeTensor tensor{.name = key};
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string() ||
        bytes_of_type(dtype->get<std::string>()) == 0) {
      throw Error("{}: dtype is {}; it is not supported", place,
                  dtype == entry.end() ? "missing" : quote(dtype->dump()));
    }
    tensor.dtype = dtype->get<std::string>();
    uint64_t bytes = bytes_of_type(tensor.dtype);
    const json& shape = array_in(place, entry, "shape");
    if (shape.size() > kMostDimensions) {
      throw Error("{}: {} dimensions; expected at most {}", place, shape.size(), kMostDimensions);
    }
    for (const json& one : shape) {
      const uint64_t size = natural(place, one, "a dimension");
      if (!std::in_range<int64_t>(size) || __builtin_mul_overflow(bytes, size, &bytes)) {
        throw Error("{}: a dimension is {}; the product of all must stay below 2^64 bytes", place,
                    size);
      }
      tensor.shape.push_back(static_cast<int64_t>(size));
    }
    const json& range = array_in(place, entry, "data_offsets");
    if (range.size() != 2) throw Error("{}: {} data_offsets; expected 2", place, range.size());
    const uint64_t begin = natural(place, range[0], "an offset");
    const uint64_t end = natural(place, range[1], "an offset");
    if (begin > end || end - begin != bytes) {
      throw Error("{}: stands at {} to {}; its shape and type need {} bytes", place, begin, end,
                  bytes);
    }
    offsets.emplace_back(begin, end);
    tensors_.push_back(std::move(tensor));
  }
  place(offsets, rest.subspan(header_bytes));
}

// The format: the tensors cover all bytes behind the header, each byte once.
void SafetensorsFile::place(const std::vector<std::pair<uint64_t, uint64_t>>& offsets,
                            std::span<const std::byte> data) {
  std::vector<size_t> order(tensors_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  uint64_t reached = 0;
  for (const size_t i : order) {
    const auto [begin, end] = offsets[i];
    SafeTensor& tensor = tensors_[i];
    if (end > data.size()) {
      throw Error("{}: tensor {} ends past the file's end; fetch the file again", name_,
                  quote(tensor.name));
    }
    if (begin != reached) {
      throw Error(
          "{}: tensor {} begins at byte {} of the data and the one before it ends at {}; "
          "expected neither gaps nor overlaps",
          name_, quote(tensor.name), begin, reached);
    }
    tensor.bytes = data.subspan(begin, end - begin);
    reached = end;
    index_.emplace(tensor.name, i);
  }
  if (reached != data.size()) {
    throw Error("{}: {} bytes behind the last tensor; expected none", name_, data.size() - reached);
  }
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const SafeTensor& SafetensorsFile::tensor(std::string_view name) const {
  const SafeTensor* found = find(name);
  if (found == nullptr) throw Error("{}: tensor {} is missing", name_, quote(name));
  if (mapping_ && !mapping_->whole()) {
    throw Failure("{}: the file was cut while it was open", name_);
  }
  return *found;
}

TensorView SafetensorsFile::matrix(std::string_view name, int64_t rows, int64_t cols) const {
  const SafeTensor& found = tensor(name);
  const std::vector<int64_t> whole = {rows, cols};
  if (const auto type = weight_type(found.dtype); type && found.shape == whole) {
    return {*type, found.bytes.data(), rows, cols};
  }
  for (const DType type : {DType::q8_0, DType::q4_1}) {
    const auto& blocks = traits(type);
    if (found.dtype != "U8" || cols % blocks.block_values != 0) continue;
    const std::vector<int64_t> packed = {rows, cols / blocks.block_values * blocks.block_bytes};
    if (found.shape == packed) return {type, found.bytes.data(), rows, cols};
  }
  throw Error("{}: tensor {} is {} ({}); expected F32, F16 or BF16 of ({}, {})", name_, quote(name),
              found.dtype, fmt::join(found.shape, ", "), rows, cols);
}

std::vector<float> SafetensorsFile::vector(std::string_view name, int64_t size) const {
  const SafeTensor& found = tensor(name);
  const std::optional<DType> type = weight_type(found.dtype);
  if (!type || found.shape != std::vector<int64_t>{size}) {
    throw Error("{}: tensor {} is {} ({}); expected F32, F16 or BF16 of ({})", name_, quote(name),
                found.dtype, fmt::join(found.shape, ", "), size);
  }
  std::vector<float> values(static_cast<size_t>(size));
  dequantise_row({*type, found.bytes.data(), 1, size}, 0, values);
  return values;
}

std::vector<int64_t> SafetensorsFile::integers(std::string_view name, int64_t size) const {
  const SafeTensor& found = tensor(name);
  const bool wide = found.dtype == "I64";
  if ((!wide && found.dtype != "I32") || found.shape != std::vector<int64_t>{size}) {
    throw Error("{}: tensor {} is {} ({}); expected I64 or I32 of ({})", name_, quote(name),
                found.dtype, fmt::join(found.shape, ", "), size);
  }
  std::vector<int64_t> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) {
    if (wide) {
      std::memcpy(&values[i], found.bytes.data() + i * sizeof(int64_t), sizeof(int64_t));
    } else {
      int32_t value = 0;
      std::memcpy(&value, found.bytes.data() + i * sizeof(value), sizeof(value));
      values[i] = value;
    }
  }
  return values;
}

void write_safetensors(const std::filesystem::path& path, std::span<const SafeTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  uint64_t at = 0;
  for (const SafeTensor& tensor : tensors) {
    uint64_t bytes = bytes_of_type(tensor.dtype);
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    COPPICE_CHECK(bytes == tensor.bytes.size() && !header.contains(tensor.name));
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data is aligned for those who map it
  const uint64_t size = text.size();
  std::filesystem::path partial = path;
  partial += ".partial";
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&size), sizeof(size));
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const SafeTensor& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
              static_cast<std::streamsize>(tensor.bytes.size()));
  }
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(partial, path, error);
  if (!out || error) {
    std::filesystem::remove(partial, error);
    throw Failure("{}: cannot be written", path.string());
  }
}

}  // namespace coppice
