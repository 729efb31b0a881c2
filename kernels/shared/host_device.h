// Marks a function that runs on the host and on a device with the same bits. Everything in this
// folder is header only, works on plain arrays, allocates nothing and fuses only where fma() is
// written (host: -ffp-contract=off, device: -fmad=false).
#pragma once

#if defined(__CUDACC__)
#define COPPICE_HD __host__ __device__
/// Before a template or member whose arguments decide where it runs: one of its teams is a block.
#define COPPICE_ANY_TEAM _Pragma("nv_exec_check_disable")
#else
#define COPPICE_HD
#define COPPICE_ANY_TEAM
#endif
