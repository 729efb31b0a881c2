// Writes GGUF images in memory, valid ones and hostile ones: every field that a reader must not
// believe can be set by hand.
//
//   GgufImage image;
//   image.key("general.architecture", "llama").tensor("w", DType::f32, {32, 2});
//   image.tensors.back().offset = 7;
//   GgufFile file("test.gguf", std::span(image.bytes()));   // of a named vector: it must outlive
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/base/dtype.h"

namespace coppice::test {

using Bytes = std::vector<std::byte>;

inline void put_bytes(Bytes& out, const void* data, size_t count) {
  const auto* begin = static_cast<const std::byte*>(data);
  out.insert(out.end(), begin, begin + count);
}

template <class T>
void put(Bytes& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    put(out, static_cast<uint64_t>(value.size()));
    put_bytes(out, value.data(), value.size());
  } else {
    static_assert(std::is_arithmetic_v<T>);
    put_bytes(out, &value, sizeof value);
  }
}

/// The specification's number for a value's type.
template <class T>
constexpr uint32_t gguf_type() {
  if constexpr (std::is_same_v<T, std::string>) return 8;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, double>) return 12;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr uint32_t kUnsigned = sizeof(T) == 1   ? 0
                                   : sizeof(T) == 2 ? 2
                                   : sizeof(T) == 4 ? 4
                                                    : 10;
    return kUnsigned + (std::is_signed_v<T> ? 1 : 0);
  }
}

struct GgufImage {
  struct Key {
    std::string name;
    uint32_t type = 0;
    Bytes value;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type = 0;
    Bytes data;
    std::optional<uint64_t> offset;  // unset: the next free multiple of the alignment
    std::optional<uint32_t> n_dims;  // unset: shape.size()
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // what the data is laid out by; `key` declares it
  std::optional<uint64_t> tensor_count;
  std::optional<uint64_t> key_count;
  std::vector<Key> keys;
  std::vector<Tensor> tensors;

  /// Adds a key, or gives the key of that name another value.
  template <class T>
  GgufImage& key(const std::string& name, const T& value) {
    Key& slot = find_or_add(name);
    slot = {name, gguf_type<T>(), {}};
    put(slot.value, value);
    return *this;
  }
  GgufImage& key(const std::string& name, const char* value) {
    return key(name, std::string(value));
  }
  template <class T>
  GgufImage& key(const std::string& name, const std::vector<T>& values) {
    Key& slot = find_or_add(name);
    slot = {name, 9, {}};
    put(slot.value, gguf_type<T>());
    put(slot.value, static_cast<uint64_t>(values.size()));
    for (auto&& value : values) put<T>(slot.value, value);
    return *this;
  }
  GgufImage& without_key(const std::string& name) {
    std::erase_if(keys, [&](const Key& key) { return key.name == name; });
    return *this;
  }

  /// A tensor of zeros.
  GgufImage& tensor(const std::string& name, DType type, const std::vector<uint64_t>& shape) {
    const uint64_t values =
        std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
    const size_t bytes = values / traits(type).block_values * traits(type).block_bytes;
    tensors.push_back({name, shape, static_cast<uint32_t>(type), Bytes(bytes), {}, {}});
    return *this;
  }
  GgufImage& tensor(const std::string& name, const std::vector<uint64_t>& shape,
                    const std::vector<float>& values) {
    tensor(name, DType::f32, shape);
    std::memcpy(tensors.back().data.data(), values.data(), values.size() * sizeof(float));
    return *this;
  }
  GgufImage& without_tensor(const std::string& name) {
    std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; });
    return *this;
  }
  Bytes bytes() const {
    Bytes out;
    put_bytes(out, magic.data(), magic.size());
    put(out, version);
    put(out, tensor_count.value_or(tensors.size()));
    put(out, key_count.value_or(keys.size()));
    for (const Key& key : keys) {
      put(out, key.name);
      put(out, key.type);
      put_bytes(out, key.value.data(), key.value.size());
    }
    Bytes data;
    for (const Tensor& tensor : tensors) {
      data.resize(aligned(data.size()));
      put(out, tensor.name);
      put(out, tensor.n_dims.value_or(static_cast<uint32_t>(tensor.shape.size())));
      for (const uint64_t dim : tensor.shape) put(out, dim);
      put(out, tensor.type);
      put(out, tensor.offset.value_or(data.size()));
      put_bytes(data, tensor.data.data(), tensor.data.size());
    }
    if (!data.empty()) out.resize(aligned(out.size()));
    put_bytes(out, data.data(), data.size());
    return out;
  }

 private:
  size_t aligned(size_t position) const {
    return (position + alignment - 1) / alignment * alignment;
  }
  Key& find_or_add(const std::string& name) {
    for (Key& key : keys) {
      if (key.name == name) return key;
    }
    return keys.emplace_back();
  }
};

}  // namespace coppice::test
