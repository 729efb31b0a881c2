// A hash table from 64-bit keys to ints for tables that only grow: open addressing in one array, so
// an insert allocates rarely and dropping a large table is one free.
//
//   FlatMap last_end;
//   last_end[hash] = position;
//   if (const int32_t* found = last_end.find(hash)) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace coppice {

class FlatMap {
 public:
  /// Null when absent; valid until the next insert. Keys are any but 2^64 - 1.
  const int32_t* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place_of(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  /// Inserts -1 when absent; valid until the next insert.
  int32_t& operator[](uint64_t key) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(key)];
    if (slot.key != key) {
      slot = {key, -1};
      ++size_;
    }
    return slot.value;
  }
  size_t size() const { return size_; }
  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    int32_t value = -1;
  };

  // The key's own slot, or the empty one where it would go.
  size_t place_of(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    const size_t mask = slots_.size() - 1;
    size_t place = static_cast<size_t>(mixed >> 32) & mask;
    while (slots_[place].key != key && slots_[place].key != kEmpty) place = (place + 1) & mask;
    return place;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
};

/// The key of a step from a node (or state) by a token.
inline uint64_t step_key(int32_t from, int32_t token) {
  return static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(token);
}

}  // namespace coppice
