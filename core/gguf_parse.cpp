// GgufFile::parse: the bytes of a GGUF image to metadata and tensors, believing nothing.
// Source: the GGUF specification (ggml), versions 2 and 3, little-endian.
//
// Layout: "GGUF", u32 version, u64 tensor count, u64 key count; keys (text name, u32 type, value);
// tensors (text name, u32 n_dims, u64 dims, u32 type, u64 offset); data, at the next multiple of
// general.alignment, that the offsets count from. Gaps between tensors and bytes after the last one
// are never read and are allowed: no tensor's value can depend on them.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "core/gguf.h"
#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they stand");

constexpr uint64_t kLongestName = 65535;  // the specification's bound for keys
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr int64_t kLargestAlignment = 65536;

/// Reads forward through the image. `place` says what is being read, for the messages.
class Cursor {
 public:
  Cursor(const std::string& file, std::span<const std::byte> image) : file_(file), image_(image) {}

  void enter(std::string place) { place_ = std::move(place); }
  size_t position() const { return position_; }

  template <class T>
  T take() {
    if constexpr (std::is_same_v<T, std::string>) {
      return std::string(take_text(image_.size()));
    } else if constexpr (std::is_same_v<T, bool>) {
      const auto byte = take<uint8_t>();
      if (byte > 1) fail(fmt::format("the boolean is {}; expected 0 or 1", byte));
      return byte == 1;
    } else {
      T value;
      std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
      return value;
    }
  }

  /// A count of things that need `least_bytes` each, bounded by what is left of the file, so that
  /// memory can be reserved for it.
  uint64_t take_count(uint64_t least_bytes) {
    const auto count = take<uint64_t>();
    const uint64_t most = (image_.size() - position_) / least_bytes;
    if (count > most) {
      fail(fmt::format("the count is {}; expected at most {}, the rest of the file", count, most));
    }
    return count;
  }

  std::string_view take_text(uint64_t longest) {
    const auto length = take<uint64_t>();
    const uint64_t most = std::min<uint64_t>(longest, image_.size() - position_);
    if (length > most)
      fail(fmt::format("the text has {} bytes; expected at most {}", length, most));
    const auto bytes = take_bytes(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("{}: {}: {}", file_, place_, what);
  }

 private:
  std::span<const std::byte> take_bytes(size_t count) {
    if (count > image_.size() - position_) {
      fail(fmt::format("the file ends there, after {} bytes; fetch it again", image_.size()));
    }
    position_ += count;
    return image_.subspan(position_ - count, count);
  }

  const std::string& file_;
  std::span<const std::byte> image_;
  size_t position_ = 0;
  std::string place_ = "the header";
};

/// One value, or an array of them, stored as `Stored` and kept as `Kept`.
template <class Stored, class Kept>
GgufValue take_value(Cursor& in, bool array) {
  if (!array) return GgufValue(std::in_place_type<Kept>, in.take<Stored>());
  const bool is_text = std::is_same_v<Stored, std::string>;
  const uint64_t count = in.take_count(is_text ? sizeof(uint64_t) : sizeof(Stored));
  std::vector<Kept> values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(in.take<Stored>());
  return GgufValue(std::in_place_type<std::vector<Kept>>, std::move(values));
}

GgufValue take_value(Cursor& in, uint32_t type, bool array) {
  switch (type) {  // the specification's type numbers
    case 0:
      return take_value<uint8_t, uint64_t>(in, array);
    case 1:
      return take_value<int8_t, int64_t>(in, array);
    case 2:
      return take_value<uint16_t, uint64_t>(in, array);
    case 3:
      return take_value<int16_t, int64_t>(in, array);
    case 4:
      return take_value<uint32_t, uint64_t>(in, array);
    case 5:
      return take_value<int32_t, int64_t>(in, array);
    case 6:
      return take_value<float, double>(in, array);
    case 7:
      return take_value<bool, bool>(in, array);
    case 8:
      return take_value<std::string, std::string>(in, array);
    case 9:
      if (array) in.fail("an array of arrays is not supported");
      return take_value(in, in.take<uint32_t>(), true);
    case 10:
      return take_value<uint64_t, uint64_t>(in, array);
    case 11:
      return take_value<int64_t, int64_t>(in, array);
    case 12:
      return take_value<double, double>(in, array);
    default:
      in.fail(fmt::format("the value's type is {}; expected 0 to 12", type));
  }
}

uint32_t take_version(Cursor& in) {
  char magic[4];
  for (char& c : magic) c = in.take<char>();
  const std::string_view found(magic, sizeof magic);
  if (found != "GGUF") {
    in.fail(fmt::format("the file begins with {}; expected 'GGUF', a GGUF model", quote(found)));
  }
  const auto version = in.take<uint32_t>();
  if (version != 0 && (version & 0xffff) == 0) {
    in.fail("the file is big-endian; expected a little-endian one, convert it");
  }
  if (version != 2 && version != 3) {
    in.fail(fmt::format("the GGUF version is {}; expected 2 or 3", version));
  }
  return version;
}

/// A tensor type that is not read, by name where it has one.
std::string describe_type(uint32_t number) {
  constexpr std::pair<uint32_t, const char*> kNames[] = {
      {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},        {10, "Q2_K"},    {11, "Q3_K"},
      {15, "Q8_K"},       {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"}, {19, "IQ1_S"},
      {20, "IQ4_NL"},     {21, "IQ3_S"},      {22, "IQ2_S"},      {23, "IQ4_XS"},  {24, "I8"},
      {25, "I16"},        {26, "I32"},        {27, "I64"},        {28, "F64"},     {29, "IQ1_M"},
      {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"},
      {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"}};
  for (const auto& [known, name] : kNames) {
    if (known == number) return fmt::format("{} ({})", number, name);
  }
  return fmt::format("{}", number);
}

struct TensorEntry {
  GgufTensor tensor;    // view.data is null until the data's place is known
  uint64_t offset = 0;  // from the start of the data
};

TensorEntry take_tensor(Cursor& in, std::string name, uint64_t alignment) {
  TensorEntry entry;
  const auto n_dims = in.take<uint32_t>();
  if (n_dims < 1 || n_dims > 4) in.fail(fmt::format("{} dimensions; expected 1 to 4", n_dims));
  int64_t values = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    const auto dim = in.take<uint64_t>();
    if (dim < 1 || !std::in_range<int64_t>(dim) ||
        __builtin_mul_overflow(values, static_cast<int64_t>(dim), &values)) {
      in.fail(
          fmt::format("dimension {} is {}; expected 1 or more and a product below 2^63", i, dim));
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(dim));
  }
  const auto number = in.take<uint32_t>();
  const std::optional<DType> type = dtype_from_gguf(number);
  if (!type) {
    in.fail(
        fmt::format("type {} is not supported; expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
                    "Q8_0, Q4_K, Q5_K or Q6_K",
                    describe_type(number)));
  }
  const int64_t cols = entry.tensor.shape[0];
  if (cols % traits(*type).block_values != 0) {
    in.fail(fmt::format("rows have {} values; expected a multiple of {}, the block of {}", cols,
                        traits(*type).block_values, traits(*type).name));
  }
  entry.offset = in.take<uint64_t>();
  if (entry.offset % alignment != 0) {
    in.fail(fmt::format("its offset is {}; expected a multiple of {}, the alignment", entry.offset,
                        alignment));
  }
  entry.tensor.name = std::move(name);
  entry.tensor.view = {*type, nullptr, values / cols, cols};
  return entry;
}

/// Points each view at its bytes, after checking that they are inside `data` and nobody else's.
void place_tensors(const std::string& file, std::span<const std::byte> data,
                   std::vector<TensorEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return entries[a].offset < entries[b].offset; });
  uint64_t free_from = 0;
  const GgufTensor* previous = nullptr;
  for (const size_t i : order) {
    auto& [tensor, offset] = entries[i];
    TensorView& view = tensor.view;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(view.cols / traits(view.type).block_values * view.rows,
                               traits(view.type).block_bytes, &bytes) ||
        offset > data.size() || bytes > data.size() - offset) {
      throw Error("{}: tensor {} ends past the file's end; fetch the file again", file,
                  quote(tensor.name));
    }
    if (offset < free_from) {
      throw Error("{}: tensors {} and {} overlap; expected each to have its own bytes", file,
                  quote(previous->name), quote(tensor.name));
    }
    view.data = data.data() + offset;
    free_from = offset + bytes;
    previous = &tensor;
  }
}

}  // namespace

void GgufFile::parse() {
  Cursor in(name_, image_);
  version_ = take_version(in);
  in.enter("the tensor count");
  const uint64_t tensor_count = in.take_count(kLeastTensorBytes);
  in.enter("the key count");
  const uint64_t key_count = in.take_count(kLeastKeyBytes);

  metadata_.reserve(key_count);
  for (uint64_t i = 0; i < key_count; ++i) {
    in.enter(fmt::format("the name of key {} of {}", i + 1, key_count));
    std::string key(in.take_text(kLongestName));
    if (key.empty()) in.fail("the name is empty");
    in.enter(fmt::format("key {}", quote(key)));
    if (!key_index_.emplace(key, i).second) in.fail("the key occurs twice; expected it once");
    metadata_.emplace_back(std::move(key), take_value(in, in.take<uint32_t>(), false));
  }
  alignment_ = static_cast<size_t>(integer_or("general.alignment", 8, kLargestAlignment, 32));
  if (!std::has_single_bit(alignment_)) {
    throw Error("{}: key 'general.alignment' is {}; expected a power of two", name_, alignment_);
  }

  std::vector<TensorEntry> entries;
  entries.reserve(tensor_count);
  for (uint64_t i = 0; i < tensor_count; ++i) {
    in.enter(fmt::format("the name of tensor {} of {}", i + 1, tensor_count));
    std::string name(in.take_text(kLongestName));
    if (name.empty()) in.fail("the name is empty");
    in.enter(fmt::format("tensor {}", quote(name)));
    if (!tensor_index_.emplace(name, i).second)
      in.fail("the tensor occurs twice; expected it once");
    entries.push_back(take_tensor(in, std::move(name), alignment_));
  }
  const size_t data_start = (in.position() + alignment_ - 1) / alignment_ * alignment_;
  place_tensors(name_, image_.subspan(std::min(data_start, image_.size())), entries);
  tensors_.reserve(entries.size());
  for (TensorEntry& entry : entries) tensors_.push_back(std::move(entry.tensor));
}

}  // namespace coppice
