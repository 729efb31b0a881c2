// The paged KV cache. A sequence has committed slots 0..committed-1; a step reserves a tail of
// slots behind them for its rows and then commits the rows that were accepted, or rolls all of them
// back. Slots are found through the sequence's page table: slot s is page pages[s / kPageSlots].
//
//   KVCache cache(backend, shapes, 256);
//   SeqId seq = cache.open();
//   std::optional<KVCache::Tail> tail = cache.reserve(seq, 5);   // empty: no pages left
//   cache.commit(std::move(*tail), kept);                        // offsets into the tail,
//   ascending
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace coppice {

using SeqId = int32_t;

struct KvShape {
  int kv_heads = 0;
  int head_dim = 0;
};

class KVCache {
 public:
  /// The rows a step works on; gives its slots back when destroyed uncommitted.
  class Tail {
   public:
    Tail(Tail&& other) noexcept;
    Tail& operator=(Tail&&) = delete;
    ~Tail();

    SeqId sequence() const { return sequence_; }
    int rows() const { return rows_; }
    int first_slot() const { return first_slot_; }  // = committed when it was reserved

   private:
    friend class KVCache;
    Tail(KVCache& cache, SeqId sequence, int rows, int first_slot)
        : cache_(&cache), sequence_(sequence), rows_(rows), first_slot_(first_slot) {}
    KVCache* cache_;
    SeqId sequence_;
    int rows_;
    int first_slot_;
  };

  /// `layers` in order: the target's, then those that drafters asked for.
  KVCache(Backend& backend, std::span<const KvShape> layers, int pages);

  SeqId open();
  /// Gives every page of the sequence back. No tail of it may be alive.
  void close(SeqId sequence);

  /// Slots committed .. committed+rows-1, or nothing when there are too few pages. A sequence has
  /// one tail at a time.
  std::optional<Tail> reserve(SeqId sequence, int rows);
  /// Keeps the rows at these offsets of the tail (strictly ascending), moved to follow the
  /// committed ones in every layer, and gives back the pages behind them.
  void commit(Tail&& tail, std::span<const int> kept);
  /// Keeps every row of the tail.
  void commit_all(Tail&& tail);
  /// Forgets committed slots from `committed` on; the sequence has no tail.
  void truncate(SeqId sequence, int committed);

  int committed(SeqId sequence) const { return at(sequence).committed; }
  std::span<const int32_t> pages(SeqId sequence) const { return at(sequence).pages; }
  KvLayer layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  int layers() const { return static_cast<int>(layers_.size()); }
  int free_pages() const { return static_cast<int>(free_.size()); }
  int total_pages() const { return total_pages_; }
  static int pages_for(int slots) { return (slots + kPageSlots - 1) / kPageSlots; }

  /// Fills every slot that holds nothing committed with NaN: a test that reads one sees it.
  void poison_uncommitted();

 private:
  struct Sequence {
    bool open = false;
    bool has_tail = false;
    int committed = 0;
    std::vector<int32_t> pages;
  };
  const Sequence& at(SeqId sequence) const;
  Sequence& at(SeqId sequence);
  void release_behind(Sequence& sequence);
  void roll_back(const Tail& tail);

  Backend* backend_;
  Buffer memory_;
  std::vector<KvLayer> layers_;
  int total_pages_ = 0;
  std::vector<int32_t> free_;
  std::vector<Sequence> sequences_;
  std::vector<int32_t> move_from_, move_to_;
  std::vector<Op> ops_;
};

}  // namespace coppice
