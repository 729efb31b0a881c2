// The reference's inner loops for the instruction set that the whole program is compiled for.
#define COPPICE_ARITHMETIC baseline_arithmetic
#include "kernels/reference/arithmetic-inl.h"
