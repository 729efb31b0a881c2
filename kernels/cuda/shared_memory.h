// What the backend's allocate() has given out, and what a device that follows the first of a group
// has in its place: memory of its own wherever ops write.
//
//   const SharedMemory::Block* block = shared.find(op.x);
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// Memory that host and devices reach.
class SharedMemory {
 public:
  struct Block {
    std::byte* begin = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;  // no two of a backend have the same
  };
  void add(std::byte* begin, size_t bytes);
  void remove(std::byte* begin);
  /// The block that `address` is in; null: host memory.
  const Block* find(const void* address) const;
  bool has(uint64_t number) const;
  uint64_t removals() const { return removals_; }
  /// A device of the group has other memory than before in some place: graphs are void, on all of
  /// them, as NCCL wants a sum to be in a graph on every device or on none. From any thread.
  void note_change() { ++changes_; }
  uint64_t changes() const { return changes_; }

 private:
  std::map<uintptr_t, Block> blocks_;  // by the first address
  uint64_t additions_ = 0, removals_ = 0;
  std::atomic<uint64_t> changes_ = 0;
};

/// Of a device that follows.
class OwnMemory {
 public:
  explicit OwnMemory(std::shared_ptr<SharedMemory> shared) : shared_(std::move(shared)) {}

  /// Lets go of what stands for memory that is gone.
  void drop_removed();
  /// Names own memory in the ops where any op writes, zeroed when it is new, and asks for copies of
  /// the rest at hand. Throws Failure when the device has no room.
  void place(std::span<Op> ops, Stream stream);
  bool stands_for(const void* address) const;

 private:
  struct Taker;
  struct Patcher;

  std::shared_ptr<SharedMemory> shared_;
  std::map<uint64_t, DeviceBlock> own_;  // by the block's number; empty: the block is read itself
  uint64_t removals_ = 0;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
