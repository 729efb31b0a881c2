// See shared_memory.h.
#include "kernels/cuda/shared_memory.h"

#include <algorithm>

#include "kernels/cuda/fields.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

/// Every device keeps a copy of what it reads there, until somebody writes.
void keep_copies(const SharedMemory::Block& block) {
#if CUDART_VERSION >= 13000
  const cudaMemLocation no_device{};
#else
  const int no_device = 0;
#endif
  check(cudaMemAdvise(block.begin, block.bytes, cudaMemAdviseSetReadMostly, no_device),
        "sharing memory among devices");
}

}  // namespace

void SharedMemory::add(std::byte* begin, size_t bytes) {
  blocks_[reinterpret_cast<uintptr_t>(begin)] = {begin, bytes, ++additions_};
}

void SharedMemory::remove(std::byte* begin) {
  blocks_.erase(reinterpret_cast<uintptr_t>(begin));
  ++removals_;
}

const SharedMemory::Block* SharedMemory::find(const void* address) const {
  const auto after = blocks_.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  return static_cast<const std::byte*>(address) < block.begin + block.bytes ? &block : nullptr;
}

bool SharedMemory::has(uint64_t number) const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [&](const auto& entry) { return entry.second.number == number; });
}

struct OwnMemory::Taker : MemoryVisitor<OwnMemory::Taker> {
  Taker(OwnMemory& of, Stream on) : owner(of), stream(on) {}
  OwnMemory& owner;
  Stream stream;

  template <class T, class Count>
  void memory(T* pointer, const Count&, bool written) {
    const SharedMemory::Block* block = owner.shared_->find(pointer);
    if (block == nullptr) return;
    const auto [entry, is_new] = owner.own_.try_emplace(block->number);
    if (!written) {
      if (is_new) keep_copies(*block);
      return;
    }
    if (entry->second.bytes() > 0) return;
    owner.shared_->note_change();
    entry->second = DeviceBlock(block->bytes, "activations and cache");
    check(cudaMemsetAsync(entry->second.data(), 0, block->bytes, stream), "clearing memory");
  }
};

struct OwnMemory::Patcher : MemoryVisitor<OwnMemory::Patcher> {
  explicit Patcher(OwnMemory& of) : owner(of) {}
  OwnMemory& owner;

  template <class T, class Count>
  void memory(T*& pointer, const Count&, bool) {
    const SharedMemory::Block* block = owner.shared_->find(pointer);
    if (block == nullptr) return;
    const DeviceBlock& own = owner.own_.at(block->number);
    if (own.bytes() == 0) return;
    const auto offset = reinterpret_cast<const std::byte*>(pointer) - block->begin;
    pointer = reinterpret_cast<T*>(own.data() + offset);
  }
};

void OwnMemory::drop_removed() {
  if (removals_ == shared_->removals()) return;
  removals_ = shared_->removals();
  std::erase_if(own_, [&](const auto& entry) { return !shared_->has(entry.first); });
}

void OwnMemory::place(std::span<Op> ops, Stream stream) {
  Taker taker(*this, stream);
  for (Op& op : ops) visit_fields(op, taker);
  Patcher patcher(*this);
  for (Op& op : ops) visit_fields(op, patcher);
}

bool OwnMemory::stands_for(const void* address) const {
  const SharedMemory::Block* block = shared_->find(address);
  const auto found = block == nullptr ? own_.end() : own_.find(block->number);
  return found != own_.end() && found->second.bytes() > 0;
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
