// See kv_cache.h.
#include "core/kv_cache.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"

namespace coppice {

KVCache::Tail::Tail(Tail&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      sequence_(other.sequence_),
      rows_(other.rows_),
      first_slot_(other.first_slot_) {}

KVCache::Tail::~Tail() {
  if (cache_ != nullptr) cache_->roll_back(*this);
}

KVCache::KVCache(Backend& backend, std::span<const KvShape> layers, int pages)
    : backend_(&backend), total_pages_(pages) {
  COPPICE_CHECK(pages > 0 && !layers.empty());
  size_t bytes = 0;
  for (const KvShape& shape : layers) {
    bytes += kv_page_bytes(shape.kv_heads, shape.head_dim) * static_cast<size_t>(pages);
  }
  memory_ = backend.allocate(bytes);
  std::byte* base = memory_.as<std::byte>();
  for (const KvShape& shape : layers) {
    const size_t page_bytes = kv_page_bytes(shape.kv_heads, shape.head_dim);
    layers_.push_back({base, page_bytes, shape.kv_heads, shape.head_dim});
    base += page_bytes * static_cast<size_t>(pages);
  }
  for (int page = pages - 1; page >= 0; --page) free_.push_back(page);  // page 0 is taken first
}

const KVCache::Sequence& KVCache::at(SeqId sequence) const {
  COPPICE_CHECK(sequence >= 0 && static_cast<size_t>(sequence) < sequences_.size());
  const Sequence& found = sequences_[static_cast<size_t>(sequence)];
  COPPICE_CHECK(found.open);
  return found;
}

KVCache::Sequence& KVCache::at(SeqId sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

SeqId KVCache::open() {
  const auto unused =
      std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.open; });
  const auto index = unused - sequences_.begin();
  if (unused == sequences_.end()) sequences_.emplace_back();
  sequences_[static_cast<size_t>(index)].open = true;
  return static_cast<SeqId>(index);
}

void KVCache::close(SeqId sequence) {
  Sequence& closed = at(sequence);
  COPPICE_CHECK(!closed.has_tail);
  closed.committed = 0;
  release_behind(closed);
  closed.open = false;
}

std::optional<KVCache::Tail> KVCache::reserve(SeqId sequence, int rows) {
  Sequence& owner = at(sequence);
  COPPICE_CHECK(!owner.has_tail && rows > 0);
  const int wanted = pages_for(owner.committed + rows) - static_cast<int>(owner.pages.size());
  if (wanted > free_pages()) return std::nullopt;
  for (int i = 0; i < wanted; ++i) {
    owner.pages.push_back(free_.back());
    free_.pop_back();
  }
  owner.has_tail = true;
  return Tail(*this, sequence, rows, owner.committed);
}

void KVCache::commit(Tail&& tail, std::span<const int> kept) {
  COPPICE_CHECK(tail.cache_ == this);
  tail.cache_ = nullptr;
  Sequence& owner = at(tail.sequence_);
  move_from_.clear();
  move_to_.clear();
  const auto place = [&](int slot) {
    return owner.pages[static_cast<size_t>(slot / kPageSlots)] * kPageSlots + slot % kPageSlots;
  };
  // Ascending offsets: a row moves to its own place or to one before it, so a move in order never
  // overwrites a row that is still to be moved.
  int previous = -1;
  for (size_t i = 0; i < kept.size(); ++i) {
    COPPICE_CHECK(kept[i] > previous && kept[i] < tail.rows_);
    previous = kept[i];
    if (kept[i] == static_cast<int>(i)) continue;
    move_from_.push_back(place(owner.committed + kept[i]));
    move_to_.push_back(place(owner.committed + static_cast<int>(i)));
  }
  if (!move_from_.empty()) {
    ops_.clear();
    for (const KvLayer& layer : layers_) {
      ops_.push_back(
          MoveKv{layer, static_cast<int>(move_from_.size()), move_from_.data(), move_to_.data()});
    }
    backend_->run(ops_);
  }
  owner.committed += static_cast<int>(kept.size());
  owner.has_tail = false;
  release_behind(owner);
}

void KVCache::commit_all(Tail&& tail) {
  COPPICE_CHECK(tail.cache_ == this);
  tail.cache_ = nullptr;
  Sequence& owner = at(tail.sequence_);
  owner.committed += tail.rows_;
  owner.has_tail = false;
}

void KVCache::truncate(SeqId sequence, int committed) {
  Sequence& owner = at(sequence);
  COPPICE_CHECK(!owner.has_tail && committed >= 0 && committed <= owner.committed);
  owner.committed = committed;
  release_behind(owner);
}

void KVCache::roll_back(const Tail& tail) {
  Sequence& owner = at(tail.sequence_);
  owner.has_tail = false;
  release_behind(owner);
}

void KVCache::release_behind(Sequence& sequence) {
  const auto needed = static_cast<size_t>(pages_for(sequence.committed));
  while (sequence.pages.size() > needed) {
    free_.push_back(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

void KVCache::poison_uncommitted() {
  constexpr uint16_t kNan = 0x7e00;
  backend_->run({});  // moves may still be under way
  // First slot of each page that holds nothing committed.
  std::vector<int> used(static_cast<size_t>(total_pages_), 0);
  for (const Sequence& sequence : sequences_) {
    for (size_t p = 0; p < sequence.pages.size(); ++p) {
      used[static_cast<size_t>(sequence.pages[p])] =
          std::clamp(sequence.committed - static_cast<int>(p) * kPageSlots, 0, kPageSlots);
    }
  }
  for (const KvLayer& layer : layers_) {
    for (int page = 0; page < total_pages_; ++page) {
      auto* k = reinterpret_cast<uint16_t*>(layer.base + layer.page_stride * page);
      uint16_t* v = k + layer.kv_heads * layer.head_dim * kPageSlots;
      const int first = used[static_cast<size_t>(page)];
      for (int row = 0; row < layer.kv_heads * layer.head_dim; ++row) {
        std::fill(k + row * kPageSlots + first, k + (row + 1) * kPageSlots, kNan);
      }
      for (int head = 0; head < layer.kv_heads; ++head) {
        uint16_t* values = v + head * kPageSlots * layer.head_dim;
        std::fill(values + first * layer.head_dim, values + kPageSlots * layer.head_dim, kNan);
      }
    }
  }
}

}  // namespace coppice
