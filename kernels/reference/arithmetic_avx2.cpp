// The reference's inner loops for x86-64 with AVX2 and FMA; compiled with those flags.
#if defined(__x86_64__)
#define Eigen EigenAvx2
#define COPPICE_ARITHMETIC avx2_arithmetic
#include "kernels/reference/arithmetic-inl.h"
#endif
