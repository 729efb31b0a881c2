// What every kernel file includes: CUDA's built-ins, from the toolkit under nvcc and from the
// emulator in host/ under any other compiler, and the few names through which both are written
// alike. A kernel is one .cu file; nvcc compiles it for devices and the host compiler compiles the
// same file for the emulator, so that it is tested where there is no GPU.
//
//   namespace coppice::cuda {
//   inline namespace COPPICE_CUDA_BUILD {                 // both builds may be linked together
//   __global__ void reverse(const float* x, int count, float* out) {
//     follow_previous();                                 // launch.cuh
//     COPPICE_SHARED(float, tile, 256);                  // Shared<float>: float* on a device
//     const int i = static_cast<int>(threadIdx.x);
//     if (i < count) tile[i] = x[i];
//     __syncthreads();
//     if (i < count) out[i] = tile[count - 1 - i];
//   }
//   void run_reverse(..., Stream stream) {
//     launch<reverse>({.name = "reverse", .grid = extent(1), .block = extent(256)}, x, count, out);
//   }
//
// Rules that keep one source right on both: shared memory is declared by the two macros and passed
// as Shared<T>; several bytes at once go through load_as and store_as; a value read from shared
// memory is given its type (`const float v = tile[i]`, never auto); fma is written where meant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define COPPICE_UNROLL _Pragma("unroll")
#define COPPICE_PRAGMA(text) _Pragma(#text)
#define COPPICE_UNROLL_BY(count) COPPICE_PRAGMA(unroll count)
#define COPPICE_NO_UNROLL _Pragma("unroll 1")
#define COPPICE_SHARED(T, name, count) __shared__ __align__(16) T name[count]
#define COPPICE_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char coppice_dynamic_shared[]; \
  const ::coppice::cuda::Shared<T> name = reinterpret_cast<T*>(coppice_dynamic_shared)

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

template <class T>
using Shared = T*;

/// The sizeof(V) bytes at `at`, which is aligned to them.
template <class V, class T>
__device__ __forceinline__ V load_as(const T* at) {
  return *reinterpret_cast<const V*>(at);
}
template <class V, class T>
__device__ __forceinline__ void store_as(T* at, const V& value) {
  *reinterpret_cast<V*>(at) = value;
}
template <class V, class T>
__device__ __forceinline__ V* shared_cast(T* at) {
  return reinterpret_cast<V*>(at);
}

__device__ __forceinline__ float half_bits_to_float(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ __forceinline__ uint16_t float_to_half_bits(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ __forceinline__ float bfloat16_bits_to_float(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
__device__ __forceinline__ uint16_t float_to_bfloat16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

/// Returns when the kernel before this one on the stream has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// From here on blocks of the next kernel may come to where this one leaves room.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Asks for the line at `at` to be brought to the second-level cache.
__device__ __forceinline__ void prefetch_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

#else

#define COPPICE_UNROLL
#define COPPICE_UNROLL_BY(count)
#define COPPICE_NO_UNROLL

#include "kernels/cuda/host/builtins.h"

#endif

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// How a kernel begins that can do nothing ahead of the one before it.
__device__ __forceinline__ void follow_previous() {
  let_next_start();
  wait_for_previous();
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
