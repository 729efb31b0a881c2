// One block of an emulated kernel: its threads, what they wait for, and its shared memory.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cuda/host/builtins.h"
#include "kernels/cuda/host/fibers.h"

namespace coppice::cuda {
inline namespace emulated {
namespace emulator {

inline constexpr uint32_t kMostThreads = 1024;
inline constexpr size_t kMostSharedBytes = 227 << 10;  // of a block on sm_90
inline constexpr size_t kMostStaticBytes = 48 << 10;   // more is only had as dynamic
inline constexpr size_t kSharedAlignment = 16;
inline constexpr auto kPoison = std::byte{0xff};  // NaN in every float format

/// splitmix64: small, and the orders need no more.
class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}
  uint32_t below(size_t end) {
    uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((x >> 32) * end >> 32);
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
  int barriers = 0;             // of any kind that it came to
  bool waited = false;          // for the kernel before
};

struct Warp {
  struct Waiting {  // a warp-wide operation that has begun
    uint32_t mask;
    uint32_t arrived;  // lanes
    Combine combine;
  };
  uint32_t lanes = 0;  // that the block has
  uint32_t ended = 0;
  std::vector<Waiting> waiting;
  Lane lane[warpSize];
};

/// Kept from block to block: what a block uses of it is poisoned when it is declared.
struct SharedArena {
  std::vector<std::byte> memory = std::vector<std::byte>(kMostSharedBytes);
  std::vector<SharedCell> cells = std::vector<SharedCell>(kMostSharedBytes);
};

/// See drop_barrier.
struct Drop {
  std::string kernel;
  int index = 0;
  int count = 0;  // of barriers that were passed so
};

inline constinit thread_local Random orders{1};
inline thread_local Drop drop;
inline thread_local Stacks stacks;
inline thread_local SharedArena arena;
inline constinit thread_local class Block* block = nullptr;
inline constinit thread_local uint32_t running = 0;  // index of the thread that runs

/// One block at work.
class Block {
 public:
  Block(uint32_t threads, size_t dynamic_bytes, const char* kernel, bool early)
      : kernel_(kernel),
        early_(early),
        threads_(threads),
        warps_((threads + warpSize - 1) / warpSize),
        live_(threads) {
    for (uint32_t i = 0; i < threads; ++i) {
      threads_[i].index = {i % blockDim.x, i / blockDim.x % blockDim.y,
                           i / (blockDim.x * blockDim.y)};
      ready_.push_back(i);
      warps_[i / warpSize].lanes |= 1u << i % warpSize;
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
          if (error_) throw Abandoned{};
          kernel();
          if (early_ && !threads_[i].waited) fail("it ends without wait_for_previous()");
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

  void note_wait() { threads_[running].waited = true; }

  bool drops_barrier() {
    const int index = threads_[running].barriers++;
    if (index != drop.index || drop.kernel != kernel_) return false;
    ++drop.count;
    return true;
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
    const uint32_t lane = running % warpSize, own = 1u << lane;
    Warp& warp = warps_[running / warpSize];
    Thread* threads = &threads_[running - lane];
    if ((mask & own) == 0) fail("a warp-wide operation whose mask lacks the lane");
    if ((mask & ~warp.lanes) != 0) fail("a warp-wide operation with lanes the block lacks");
    if ((mask & warp.ended) != 0) fail("a warp-wide operation with a lane that has ended");
    threads[lane].state = State::in_collective;
    warp.lane[lane] = {in, out};
    auto same = warp.waiting.begin();
    for (auto it = warp.waiting.begin(); it != warp.waiting.end(); ++it) {
      if (it->mask == mask && it->combine == combine) {
        same = it;
      } else if ((it->mask & own) != 0 && (it->arrived & mask) != 0) {
        fail("lanes of one warp in different warp-wide operations");
      }
    }
    if (warp.waiting.empty() || same->mask != mask || same->combine != combine) {
      same = warp.waiting.insert(same, {mask, 0, combine});
    }
    same->arrived |= own;
    if (same->arrived != mask) return leave();
    warp.waiting.erase(same);
    combine(warp.lane, mask);
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      const auto i = static_cast<uint32_t>(std::countr_zero(left));
      threads[i].state = State::ready;
      if (i != lane) ready_.push_back(running - lane + i);
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
    const size_t alignment = bytes & (~bytes + 1);  // the largest power of two that divides it
    if (reinterpret_cast<uintptr_t>(at) % alignment != 0) {
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
    warps_[i / warpSize].ended |= 1u << i % warpSize;
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
  bool early_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
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

}  // namespace emulator
}  // namespace emulated
}  // namespace coppice::cuda
