// Tensor-core products of small matrices, D = A B + C, whose operands lie in the registers of one
// warp. PTX ISA, "Matrix fragments for mma.m16n8k16 / m16n8k32". With g = lane / 4, t = lane % 4:
//
//   C, D (16 x 8):  c[0] (g, 2t)   c[1] (g, 2t + 1)   c[2] (g + 8, 2t)   c[3] (g + 8, 2t + 1)
//   16-bit, k = 16: a[0] (g, 2t..2t+1)      a[1] (g + 8, 2t..2t+1)      b[0] (2t..2t+1, g)
//                   a[2] (g, 2t+8..2t+9)    a[3] (g + 8, 2t+8..2t+9)    b[1] (2t+8..2t+9, g)
//   8-bit, k = 32:  a[0] (g, 4t..4t+3)      a[1] (g + 8, 4t..4t+3)      b[0] (4t..4t+3, g)
//                   a[2] (g, 4t+16..4t+19)  a[3] (g + 8, 4t+16..4t+19)  b[1] (4t+16..4t+19, g)
//   8-bit, k = 16:  a[0], a[1] and b[0] of the above.
//
// Lower k stands in lower bits. Every function is a warp-wide operation of all 32 lanes.
#pragma once

#include "kernels/cuda/device.cuh"

#if defined(__CUDACC__)

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                       uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

#else

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_s8_half(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

#endif
