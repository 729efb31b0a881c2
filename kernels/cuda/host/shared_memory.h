// Shared memory of the emulator: Shared<T> stands for the T* of a device and checks every access.
// Beside each byte stand its last writer and reader and when they came. An access is an error when
// it leaves its array, is misaligned, reads what no thread wrote, or meets another thread's access
// to the same byte (one of the two a write) with no barrier between them: __syncthreads, or
// __syncwarp within a warp.
//
//   const Shared<float> tile = emulator::shared_array<float>(&site, 256, "tile");
//   tile[threadIdx.x] = 1.0f;
//   const float v = tile[3];      // Failure unless this thread wrote tile[3] or a barrier passed
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace coppice::cuda {
inline namespace emulated {
namespace emulator {

struct SharedCell {
  static constexpr uint16_t kNone = 0xffff;
  static constexpr uint16_t kMany = 0xfffe;
  uint32_t write_time = 0;  // 0: never
  uint32_t read_time = 0;
  uint16_t writer = kNone;
  uint16_t reader = kNone;
};

/// One array of a block's shared memory.
struct SharedRegion {
  const void* site = nullptr;  // the declaration it belongs to
  const char* name = "";
  std::byte* begin = nullptr;
  size_t bytes = 0;
  SharedCell* cells = nullptr;  // (bytes)
};

const SharedRegion* shared_region(const void* site, const char* name, size_t bytes);
const SharedRegion* dynamic_region();
void check_read(const SharedRegion& region, const std::byte* at, size_t bytes);
void check_write(const SharedRegion& region, const std::byte* at, size_t bytes);
/// Only that the bytes are in the array and were written once.
void check_atomic(const SharedRegion& region, const std::byte* at, size_t bytes);

}  // namespace emulator

template <class T>
class SharedRef;

/// A pointer into one array of shared memory.
template <class T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Shared(const emulator::SharedRegion* region, std::byte* at) : region_(region), at_(at) {}

  SharedRef<T> operator[](std::ptrdiff_t i) const { return SharedRef<T>(*this + i); }
  SharedRef<T> operator*() const { return SharedRef<T>(*this); }
  Shared operator+(std::ptrdiff_t i) const {
    return {region_, at_ + i * static_cast<std::ptrdiff_t>(sizeof(T))};
  }
  T read() const {
    emulator::check_read(*region_, at_, sizeof(T));
    T value;
    std::memcpy(&value, at_, sizeof(T));
    return value;
  }
  void write(const T& value) const {
    emulator::check_write(*region_, at_, sizeof(T));
    std::memcpy(at_, &value, sizeof(T));
  }
  template <class V>
  Shared<V> cast() const {
    return {region_, at_};
  }
  /// The bytes themselves, for operations that do their own checks.
  const emulator::SharedRegion& region() const { return *region_; }
  std::byte* at() const { return at_; }

 private:
  const emulator::SharedRegion* region_;
  std::byte* at_;
};

/// What tile[i] is: reads and writes go through the checks.
template <class T>
class SharedRef {
 public:
  explicit SharedRef(Shared<T> pointer) : pointer_(pointer) {}
  SharedRef(const SharedRef&) = default;
  operator T() const { return pointer_.read(); }
  const SharedRef& operator=(const T& value) const {
    pointer_.write(value);
    return *this;
  }
  const SharedRef& operator=(const SharedRef& other) const { return *this = static_cast<T>(other); }
  const SharedRef& operator+=(const T& value) const {
    return *this = static_cast<T>(*this) + value;
  }
  const SharedRef& operator-=(const T& value) const {
    return *this = static_cast<T>(*this) - value;
  }
  const SharedRef& operator*=(const T& value) const {
    return *this = static_cast<T>(*this) * value;
  }
  const SharedRef& operator|=(const T& value) const {
    return *this = static_cast<T>(*this) | value;
  }
  Shared<T> operator&() const { return pointer_; }

 private:
  Shared<T> pointer_;
};

namespace emulator {

template <class T>
Shared<T> shared_array(const void* site, size_t count, const char* name) {
  const SharedRegion* region = shared_region(site, name, count * sizeof(T));
  return {region, region->begin};
}
template <class T>
Shared<T> dynamic_shared() {
  const SharedRegion* region = dynamic_region();
  return {region, region->begin};
}

}  // namespace emulator
}  // namespace emulated
}  // namespace coppice::cuda

#define COPPICE_SHARED(T, name, count)    \
  static const char name##_site = 0;      \
  const ::coppice::cuda::Shared<T> name = \
      ::coppice::cuda::emulator::shared_array<T>(&name##_site, count, #name)
#define COPPICE_DYNAMIC_SHARED(T, name) \
  const ::coppice::cuda::Shared<T> name = ::coppice::cuda::emulator::dynamic_shared<T>()
