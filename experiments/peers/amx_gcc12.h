// Included before every file of llama.cpp. g++ 12 declares that _tile_loadconfig reads 8 bytes of
// the 64: it drops the stores to the others, and AMX code built with it ends in a fault.
#pragma once

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 14
#include <immintrin.h>
#define _tile_loadconfig(config) \
  __asm__ volatile("ldtilecfg\t%X0" : : "m"(*reinterpret_cast<const char(*)[64]>(config)))
#endif
