// See emulator.h: the blocks, their threads, and what the threads wait for.
#include "kernels/cuda/host/emulator.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cuda/host/builtins.h"
#include "kernels/cuda/host/fibers.h"

namespace coppice::cuda::inline emulated {
namespace emulator {
namespace {

constexpr uint32_t kMostThreads = 1024;
constexpr size_t kMostSharedBytes = 227 << 10;  // of a block on sm_90
constexpr size_t kMostStaticBytes = 48 << 10;   // more is only had as dynamic
constexpr size_t kSharedAlignment = 16;
constexpr auto kPoison = std::byte{0xff};  // NaN in every float format

/// splitmix64: small, and the orders need no more.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t below(size_t end) {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((x ^ x >> 31) % end);
  }

 private:
  uint64_t state_;
};

/// Thrown into threads that wait while another has failed, so that their stacks unwind.
struct Abandoned {};

enum class State : uint8_t { ready, at_barrier, in_collective, ended };

struct Thread {
  uint3 index{};
  State state = State::ready;
  std::unique_ptr<Fiber> fiber;
  int barrier_count = 0;        // predicates that were true at the barrier it passed last
  uint32_t warp_sync_time = 0;  // when it last passed __syncwarp
  uint32_t mask = 0;            // of the collective it waits in
  Combine combine = nullptr;
  Lane lane;
};

/// Kept from block to block: what a block uses of it is poisoned when it is declared.
struct SharedArena {
  std::vector<std::byte> memory = std::vector<std::byte>(kMostSharedBytes);
  std::vector<SharedCell> cells = std::vector<SharedCell>(kMostSharedBytes);
};

thread_local Random orders{1};
thread_local Stacks stacks;
thread_local SharedArena arena;
thread_local class Block* block = nullptr;
thread_local uint32_t running = 0;  // index of the thread that runs

/// One block at work.
class Block {
 public:
  Block(uint32_t threads, size_t dynamic_bytes, const char* kernel)
      : kernel_(kernel), threads_(threads), live_(threads) {
    for (uint32_t i = 0; i < threads; ++i) {
      threads_[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y,
                           i / (blockDim.x * blockDim.y)};
      ready_.push_back(i);
    }
    if (dynamic_bytes > kMostSharedBytes) {
      throw Failure("kernel '{}': {} bytes of dynamic shared memory", kernel, dynamic_bytes);
    }
    dynamic_ = take(nullptr, "dynamic shared memory", dynamic_bytes);
  }

  void run(const std::function<void()>& kernel) {
    for (uint32_t i = 0; i < threads_.size(); ++i) {
      threads_[i].fiber = std::make_unique<Fiber>(stacks.at(i), [this, i, &kernel] {
        try {
          if (!error_) kernel();
        } catch (const Abandoned&) {
        } catch (...) {
          if (!error_) error_ = std::current_exception();
        }
        end(i);
      });
    }
    while (live_ > 0) {
      if (error_) {
        abandon();
        std::rethrow_exception(error_);
      }
      if (ready_.empty()) {
        error_ = std::make_exception_ptr(Failure("{}", deadlock()));
        continue;
      }
      const uint32_t pick = orders.below(ready_.size());
      std::swap(ready_[pick], ready_.back());
      const uint32_t next = ready_.back();
      ready_.pop_back();
      enter(next);
    }
    if (error_) std::rethrow_exception(error_);
  }

  int barrier(bool predicate) {
    Thread& self = threads_[running];
    self.state = State::at_barrier;
    ++waiting_;
    true_predicates_ += predicate ? 1 : 0;
    if (waiting_ == live_) open_barrier();
    leave();
    return self.barrier_count;
  }

  void collective(uint32_t mask, Combine combine, const void* in, void* out) {
    const uint32_t self_lane = running % warpSize, first = running - self_lane;
    Thread& self = threads_[running];
    if ((mask >> self_lane & 1) == 0) fail("a warp-wide operation whose mask lacks the lane");
    self.mask = mask;
    self.combine = combine;
    self.lane = {in, out};
    self.state = State::in_collective;
    Lane lanes[warpSize];
    bool complete = true;
    for (uint32_t i = 0; i < warpSize; ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (first + i >= threads_.size()) fail("a warp-wide operation with lanes the block lacks");
      const Thread& other = threads_[first + i];
      if (other.state == State::ended) fail("a warp-wide operation with a lane that has ended");
      const bool same = other.mask == mask && other.combine == combine;
      if (other.state != State::in_collective || !same) {
        complete = false;
        if (other.state == State::in_collective && (other.mask >> self_lane & 1) != 0) {
          fail("lanes of one warp in different warp-wide operations");
        }
        continue;
      }
      lanes[i] = other.lane;
    }
    if (!complete) return leave();
    combine(lanes, mask);
    for (uint32_t i = 0; i < warpSize; ++i) {
      if ((mask >> i & 1) == 0) continue;
      threads_[first + i].state = State::ready;
      if (first + i != running) ready_.push_back(first + i);
    }
    if (orders.below(4) == 0) {  // mostly it goes on itself, which saves a switch
      ready_.push_back(running);
      leave();
    }
  }

  void sync_warp(uint32_t mask) {
    ++clock_;
    const uint32_t first = running / warpSize * warpSize;
    for (uint32_t i = 0; i < warpSize; ++i) {
      if ((mask >> i & 1) != 0) threads_[first + i].warp_sync_time = clock_;
    }
  }

  const SharedRegion* region(const void* site, const char* name, size_t bytes) {
    for (const SharedRegion& each : regions_) {
      if (each.site == site) return &each;
    }
    if (used_ - dynamic_.bytes + bytes > kMostStaticBytes || used_ + bytes > kMostSharedBytes) {
      fail("more shared memory than a block has");
    }
    regions_.push_back(take(site, name, bytes));
    return &regions_.back();
  }
  const SharedRegion* dynamic_region() const { return &dynamic_; }

  /// Cells of an access that lies within its array.
  SharedCell* cells(const SharedRegion& region, const std::byte* at, size_t bytes) const {
    if (at < region.begin || at + bytes > region.begin + region.bytes) {
      fail(fmt::format("an access to bytes {}..{} of '{}', which has {}", at - region.begin,
                       at - region.begin + static_cast<std::ptrdiff_t>(bytes) - 1, region.name,
                       region.bytes));
    }
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) {
      fail(fmt::format("a misaligned access to '{}'", region.name));
    }
    return region.cells + (at - region.begin);
  }

  void read(const SharedRegion& region, const std::byte* at, size_t bytes) {
    SharedCell* cell = cells(region, at, bytes);
    for (size_t i = 0; i < bytes; ++i, ++cell) {
      if (cell->write_time == 0) {
        fail(fmt::format("a read of byte {} of '{}', which no thread has written",
                         at - region.begin, region.name));
      }
      if (!ordered(cell->writer, cell->write_time)) {
        fail(
            fmt::format("a race on '{}': a read of byte {}, which thread {} wrote with no "
                        "barrier between",
                        region.name, at - region.begin, cell->writer));
      }
      const bool alone = cell->reader == running || ordered(cell->reader, cell->read_time);
      cell->reader = alone ? static_cast<uint16_t>(running) : SharedCell::kMany;
      cell->read_time = clock_;
    }
  }
  void write(const SharedRegion& region, const std::byte* at, size_t bytes) {
    SharedCell* cell = cells(region, at, bytes);
    for (size_t i = 0; i < bytes; ++i, ++cell) {
      if (!ordered(cell->writer, cell->write_time) || !ordered(cell->reader, cell->read_time)) {
        fail(
            fmt::format("a race on '{}': a write to byte {}, which another thread used with no "
                        "barrier between",
                        region.name, at - region.begin));
      }
      cell->writer = static_cast<uint16_t>(running);
      cell->write_time = clock_;
    }
  }

  const char* kernel() const { return kernel_; }
  const Thread& thread(uint32_t i) const { return threads_[i]; }

 private:
  SharedRegion take(const void* site, const char* name, size_t bytes) {
    const SharedRegion region{site, name, arena.memory.data() + used_, bytes,
                              arena.cells.data() + used_};
    used_ += (bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
    std::fill_n(region.begin, bytes, kPoison);
    std::fill_n(region.cells, bytes, SharedCell{});
    return region;
  }
  void enter(uint32_t i) {
    running = i;
    threadIdx = threads_[i].index;
    threads_[i].fiber->enter();
  }
  /// Gives way; returns when somebody made this thread ready and its turn came.
  void leave() {
    threads_[running].fiber->leave();
    if (error_) throw Abandoned{};
  }
  void end(uint32_t i) {
    threads_[i].state = State::ended;
    --live_;
    if (waiting_ > 0 && waiting_ == live_) open_barrier();
  }
  void open_barrier() {
    barrier_time_ = ++clock_;
    for (uint32_t i = 0; i < threads_.size(); ++i) {
      if (threads_[i].state != State::at_barrier) continue;
      threads_[i].state = State::ready;
      threads_[i].barrier_count = true_predicates_;
      ready_.push_back(i);
    }
    waiting_ = 0;
    true_predicates_ = 0;
  }
  /// Lets every thread come to its end: those that wait unwind, those not begun do nothing.
  void abandon() {
    for (uint32_t i = 0; i < threads_.size(); ++i) {
      if (threads_[i].state != State::ended) enter(i);
    }
  }
  std::string deadlock() const {
    uint32_t in_collective = 0, ended = 0;
    for (const Thread& thread : threads_) {
      in_collective += thread.state == State::in_collective ? 1 : 0;
      ended += thread.state == State::ended ? 1 : 0;
    }
    return fmt::format(
        "kernel '{}', block ({}, {}, {}): {} threads wait at a barrier, {} in "
        "warp-wide operations, {} have ended, and none can go on",
        kernel_, blockIdx.x, blockIdx.y, blockIdx.z, waiting_, in_collective, ended);
  }
  /// Whether a barrier stands between an access by thread `other` at `time` and now.
  bool ordered(uint16_t other, uint32_t time) const {
    if (other == running || other == SharedCell::kNone || time < barrier_time_) return true;
    if (other == SharedCell::kMany || other / warpSize != running / warpSize) return false;
    return time < threads_[running].warp_sync_time && time < threads_[other].warp_sync_time;
  }

  const char* kernel_;
  std::vector<Thread> threads_;
  uint32_t live_;  // threads that have not ended
  std::vector<uint32_t> ready_;
  std::deque<SharedRegion> regions_;
  SharedRegion dynamic_;
  size_t used_ = 0;       // bytes of the arena
  uint32_t waiting_ = 0;  // at the barrier
  int true_predicates_ = 0;
  uint32_t clock_ = 1;  // counts barriers of any kind
  uint32_t barrier_time_ = 1;
  std::exception_ptr error_;
};

}  // namespace

void set_seed(uint64_t seed) {
  orders = Random(seed);
}

void run(dim3 grid, dim3 threads, size_t dynamic_shared_bytes, const char* name,
         const std::function<void()>& kernel) {
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
    Block work(count, dynamic_shared_bytes, name);
    struct Current {
      explicit Current(Block* work) { block = work; }
      ~Current() { block = nullptr; }
    } current(&work);
    work.run(kernel);
  }
}

int barrier(bool predicate) {
  return block->barrier(predicate);
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

}  // namespace coppice::cuda::inline emulated
