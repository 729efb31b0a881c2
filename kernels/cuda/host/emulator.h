// Runs kernels without a device. A block's threads are fibers (Boost.Context) of one operating
// system thread; each runs until it must wait: at a barrier, or at a warp-wide operation that other
// lanes have not reached. Which ready thread goes next, and which block, is drawn from a seed, so
// that code which relies on an order nobody promised breaks under some seed.
//
//     launch -> blocks in random order -> ready threads in random order -> fiber
//                                              ^                             |
//                                              +-- barrier or warp complete -+
//
// What it reports as Failure, naming thread and block: a barrier or warp-wide operation that can
// never complete; lanes of one warp in different operations; shuffles from absent lanes; and by
// shared_memory.h reads out of bounds, of memory that no thread wrote, and races.
//
//   emulator::set_seed(7);                                  // tests run under several
//   emulator::run({2}, {128}, 0, "twice", [&] { twice(x, y); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/cuda/host/vectors.h"

namespace coppice::cuda {
inline namespace emulated {

inline constexpr int warpSize = 32;

// Of the thread that is running. Set by the emulator alone.
inline constinit thread_local uint3 threadIdx{};
inline constinit thread_local uint3 blockIdx{};
inline constinit thread_local dim3 blockDim{};
inline constinit thread_local dim3 gridDim{};

namespace emulator {

/// Orders of all launches from here on; also of this operating system thread only.
void set_seed(uint64_t seed);

/// From here on the threads of kernel `name` pass their barrier number `index` (from 0, __syncwarp
/// included) as if it were not there; "" for none. Tests show by it that every barrier is needed.
void drop_barrier(const std::string& name, int index);
/// How many barriers were dropped since.
int dropped_barriers();

/// Runs `kernel` once for every thread of the grid. Throws Failure for what a device would not
/// survive, or would survive by luck. `early`: every thread must have called wait_for_previous().
void run(dim3 grid, dim3 block, size_t dynamic_shared_bytes, const char* name,
         const std::function<void()>& kernel, bool early = false);
/// The running thread waits for the kernel before this one.
void note_wait();

/// Waits for all threads of the block that have not ended; how many of them gave a true predicate.
int barrier(bool predicate);

/// One lane's part in a warp-wide operation: it stays where it is until the operation is complete.
struct Lane {
  const void* in = nullptr;
  void* out = nullptr;
};
using Combine = void (*)(const Lane (&lanes)[warpSize], uint32_t mask);

/// True, once, where the running thread is to pass its next barrier unheeded.
bool drops_barrier();

/// Waits until every lane of `mask` calls with this mask and `combine`, which the last one runs.
void collective(uint32_t mask, Combine combine, const void* in, void* out);

/// Lane of the running thread, and ": thread (1, 0, 0) of block (0, 2, 0) of kernel 'x'".
int lane();
[[noreturn]] void fail(const std::string& what);

}  // namespace emulator
}  // namespace emulated
}  // namespace coppice::cuda
