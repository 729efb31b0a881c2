// Marks a function that runs on the host and on a device with the same bits. Everything in this
// folder is header only, works on plain arrays, allocates nothing and fuses only where fma() is
// written (host: -ffp-contract=off, device: -fmad=false).
#pragma once

#if defined(__CUDACC__)
#define COPPICE_HD __host__ __device__
#else
#define COPPICE_HD
#endif
