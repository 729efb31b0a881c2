// See emulator.h: launches, and the built-in functions that need the block they run in.
#include "kernels/cuda/host/emulator.h"

#include "kernels/cuda/host/block.h"

namespace coppice::cuda {
inline namespace emulated {
namespace emulator {

void set_seed(uint64_t seed) {
  orders = Random(seed);
}

void run(dim3 grid, dim3 threads, size_t dynamic_shared_bytes, const char* name,
         const std::function<void()>& kernel, bool early) {
  if (block != nullptr) throw Failure("kernel '{}': launched by a kernel", name);
  const uint32_t count = threads.x * threads.y * threads.z;
  if (count == 0 || count > kMostThreads || threads.z > 64) {
    throw Failure("kernel '{}': a block of {} x {} x {} threads", name, threads.x, threads.y,
                  threads.z);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535) {
    throw Failure("kernel '{}': a grid of {} x {} x {} blocks", name, grid.x, grid.y, grid.z);
  }
  blockDim = threads;
  gridDim = grid;
  std::vector<uint32_t> order(size_t{grid.x} * grid.y * grid.z);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[orders.below(i)]);
  for (const uint32_t i : order) {
    blockIdx = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
    Block work(count, dynamic_shared_bytes, name, early);
    struct Current {
      explicit Current(Block* work) { block = work; }
      ~Current() { block = nullptr; }
    } current(&work);
    work.run(kernel);
  }
}

void drop_barrier(const std::string& name, int index) {
  drop = {name, index, 0};
}
int dropped_barriers() {
  return drop.count;
}
void note_wait() {
  block->note_wait();
}
bool drops_barrier() {
  return block->drops_barrier();
}
int barrier(bool predicate) {
  return drops_barrier() ? 0 : block->barrier(predicate);
}
void collective(uint32_t mask, Combine combine, const void* in, void* out) {
  block->collective(mask, combine, in, out);
}
int lane() {
  return static_cast<int>(running % warpSize);
}
void fail(const std::string& what) {
  if (block == nullptr) throw Failure("a kernel's function outside a kernel: {}", what);
  const uint3 thread = block->thread(running).index;
  throw Failure("kernel '{}', block ({}, {}, {}), thread ({}, {}, {}): {}", block->kernel(),
                blockIdx.x, blockIdx.y, blockIdx.z, thread.x, thread.y, thread.z, what);
}

const SharedRegion* shared_region(const void* site, const char* name, size_t bytes) {
  return block->region(site, name, bytes);
}
const SharedRegion* dynamic_region() {
  return block->dynamic_region();
}
void check_read(const SharedRegion& region, const std::byte* at, size_t bytes) {
  block->read(region, at, bytes);
}
void check_write(const SharedRegion& region, const std::byte* at, size_t bytes) {
  block->write(region, at, bytes);
}
void check_atomic(const SharedRegion& region, const std::byte* at, size_t bytes) {
  const SharedCell* cell = block->cells(region, at, bytes);
  if (cell->write_time == 0)
    fail("an atomic operation on shared memory that no thread has written");
}

uint64_t shuffle(uint32_t mask, uint64_t bits, int source) {
  const ShuffleIn in{bits, source};
  uint64_t out = 0;
  const Combine combine = [](const Lane(&lanes)[warpSize], uint32_t lanes_mask) {
    for (int i = 0; i < warpSize; ++i) {
      if ((lanes_mask >> i & 1) == 0) continue;
      const int from = static_cast<const ShuffleIn*>(lanes[i].in)->source;
      if (from < 0 || from >= warpSize || (lanes_mask >> from & 1) == 0) {
        fail(fmt::format("a shuffle from lane {}, which takes no part", from));
      }
      *static_cast<uint64_t*>(lanes[i].out) = static_cast<const ShuffleIn*>(lanes[from].in)->bits;
    }
  };
  collective(mask, combine, &in, &out);
  return out;
}

}  // namespace emulator

void __syncwarp(uint32_t mask) {
  if (emulator::drops_barrier()) return;
  emulator::collective(
      mask, [](const auto&, uint32_t lanes) { emulator::block->sync_warp(lanes); }, nullptr,
      nullptr);
}

uint32_t __ballot_sync(uint32_t mask, int predicate) {
  const bool in = predicate != 0;
  uint32_t out = 0;
  emulator::collective(
      mask,
      [](const emulator::Lane(&lanes)[warpSize], uint32_t lanes_mask) {
        uint32_t votes = 0;
        for (int i = 0; i < warpSize; ++i) {
          if ((lanes_mask >> i & 1) != 0 && *static_cast<const bool*>(lanes[i].in))
            votes |= 1u << i;
        }
        for (int i = 0; i < warpSize; ++i) {
          if ((lanes_mask >> i & 1) != 0) *static_cast<uint32_t*>(lanes[i].out) = votes;
        }
      },
      &in, &out);
  return out;
}

}  // namespace emulated
}  // namespace coppice::cuda
