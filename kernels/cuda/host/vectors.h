// CUDA's small vector types, as far as the kernels use them.
#pragma once

#include <cstdint>

namespace coppice::cuda {
inline namespace emulated {

struct dim3 {
  uint32_t x = 1, y = 1, z = 1;
};
struct uint3 {
  uint32_t x, y, z;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) int2 {
  int32_t x, y;
};
struct alignas(16) int4 {
  int32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) {
  return {x, y};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
inline int2 make_int2(int32_t x, int32_t y) {
  return {x, y};
}
inline int4 make_int4(int32_t x, int32_t y, int32_t z, int32_t w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

}  // namespace emulated
}  // namespace coppice::cuda
