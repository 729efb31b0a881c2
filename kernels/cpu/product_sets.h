// The tables of the instruction sets, one file each; products.cpp lists those this machine has.
#pragma once

#include "kernels/cpu/panels.h"

namespace coppice::cpu {

extern const ProductKernels kAvx512VnniProducts;  // products_avx512_vnni.cpp
extern const ProductKernels kAvx512Products;      // products_avx512.cpp
extern const ProductKernels kAvx2Products;        // products_avx2.cpp
extern const ProductKernels kNeonProducts;        // products_neon.cpp
extern const ProductKernels kScalarProducts;      // products_scalar.cpp

}  // namespace coppice::cpu
