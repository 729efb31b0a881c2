// CUDA's built-in functions for the emulator: barriers, warp shuffles and votes, atomics, bit
// tricks, number formats, vector loads. Included by device.cuh alone; the names are CUDA's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/base/dtype.h"
#include "kernels/cuda/host/emulator.h"
#include "kernels/cuda/host/shared_memory.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace coppice::cuda {
inline namespace emulated {

// Barriers. Only these two order accesses to shared memory.

inline void __syncthreads() {
  emulator::barrier(false);
}
inline int __syncthreads_count(int predicate) {
  return emulator::barrier(predicate != 0);
}
inline int __syncthreads_or(int predicate) {
  return emulator::barrier(predicate != 0) > 0 ? 1 : 0;
}
void __syncwarp(uint32_t mask = 0xffffffffu);

// Shuffles: a lane gives a value and names the lane it reads.

namespace emulator {

struct ShuffleIn {
  uint64_t bits;
  int source;
};
uint64_t shuffle(uint32_t mask, uint64_t bits, int source);

template <class T>
T shuffle_as(uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= sizeof(uint64_t) && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulator

template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = warpSize) {
  const int first = emulator::lane() / width * width;
  return emulator::shuffle_as(mask, value, first + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int bits, int width = warpSize) {
  const int lane = emulator::lane(), other = lane ^ bits;
  return emulator::shuffle_as(mask, value, other / width > lane / width ? lane : other);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, int width = warpSize) {
  const int lane = emulator::lane(), other = lane + static_cast<int>(delta);
  return emulator::shuffle_as(mask, value, other / width > lane / width ? lane : other);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, uint32_t delta, int width = warpSize) {
  const int lane = emulator::lane(), other = lane - static_cast<int>(delta);
  return emulator::shuffle_as(mask, value, other < lane / width * width ? lane : other);
}

// Votes.

uint32_t __ballot_sync(uint32_t mask, int predicate);
inline int __any_sync(uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(uint32_t mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}

// Atomics: a thread is never interrupted inside one. On shared memory they are no races.

namespace emulator {

template <class T, class Change>
T change(T* at, Change change) {
  const T before = *at;
  *at = change(before);
  return before;
}
template <class T, class Change>
T change(Shared<T> at, Change change) {
  check_atomic(at.region(), at.at(), sizeof(T));
  T value;
  std::memcpy(&value, at.at(), sizeof(T));
  const T after = change(value);
  std::memcpy(at.at(), &after, sizeof(T));
  return value;
}

}  // namespace emulator

template <class Pointer, class T>
auto atomicAdd(Pointer at, T value) {
  return emulator::change(at, [&](auto old) { return static_cast<decltype(old)>(old + value); });
}
template <class Pointer, class T>
auto atomicMax(Pointer at, T value) {
  return emulator::change(
      at, [&](auto old) { return old < value ? static_cast<decltype(old)>(value) : old; });
}
template <class Pointer, class T>
auto atomicMin(Pointer at, T value) {
  return emulator::change(
      at, [&](auto old) { return value < old ? static_cast<decltype(old)>(value) : old; });
}
template <class Pointer, class T>
auto atomicOr(Pointer at, T value) {
  return emulator::change(at, [&](auto old) { return static_cast<decltype(old)>(old | value); });
}
template <class Pointer, class T>
auto atomicExch(Pointer at, T value) {
  return emulator::change(at, [&](auto old) { return static_cast<decltype(old)>(value); });
}
template <class Pointer, class T>
auto atomicCAS(Pointer at, T expected, T value) {
  return emulator::change(at, [&](auto old) { return old == expected ? value : old; });
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Bits and numbers.

inline int __popc(uint32_t x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<uint32_t>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(x)) + 1;
}
inline uint32_t __float_as_uint(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float __uint_as_float(uint32_t x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 7;
    out |= static_cast<uint32_t>(bytes >> (8 * pick) & 0xff) << (8 * i);
  }
  return out;
}
template <class T>
T __ldg(const T* at) {
  return *at;
}

/// The sizeof(V) bytes at `at`; a device faults unless it is aligned to them.
template <class V, class T>
V load_as(const T* at) {
  if (reinterpret_cast<uintptr_t>(at) % alignof(V) != 0) emulator::fail("a misaligned load");
  V value;
  std::memcpy(&value, at, sizeof(V));
  return value;
}
template <class V, class T>
V load_as(Shared<T> at) {
  return at.template cast<V>().read();
}
template <class V, class T>
void store_as(T* at, const V& value) {
  if (reinterpret_cast<uintptr_t>(at) % alignof(V) != 0) emulator::fail("a misaligned store");
  std::memcpy(at, &value, sizeof(V));
}
template <class V, class T>
void store_as(Shared<T> at, const V& value) {
  at.template cast<V>().write(value);
}
template <class V, class T>
Shared<V> shared_cast(Shared<T> at) {
  return at.template cast<V>();
}

inline float half_bits_to_float(uint16_t bits) {
  return half_to_float(bits);
}
inline uint16_t float_to_half_bits(float value) {
  return float_to_half(value);
}
inline float bfloat16_bits_to_float(uint16_t bits) {
  return bfloat16_to_float(bits);
}
inline uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, as the device writes it
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline void prefetch_l2(const void*) {}

inline void wait_for_previous() {
  emulator::note_wait();
}
inline void let_next_start() {}

}  // namespace emulated
}  // namespace coppice::cuda
