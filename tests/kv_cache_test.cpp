// The cache: page balance, rollback, and a commit that keeps exactly the accepted path's rows.
#include "core/kv_cache.h"

#include <gtest/gtest.h>

#include <random>

namespace coppice {
namespace {

constexpr KvShape kShapes[] = {{2, 4}, {1, 8}};

class KvCacheTest : public testing::Test {
 protected:
  // Marks a slot's K and V with a value in every layer, as a forward would write them.
  void write(KVCache& cache, SeqId sequence, int slot, uint16_t value) {
    each(cache, sequence, slot, [&](uint16_t& half) { half = value; });
  }
  uint16_t read(KVCache& cache, SeqId sequence, int slot) {
    std::optional<uint16_t> found;
    each(cache, sequence, slot, [&](uint16_t& half) {
      if (!found) found = half;
      EXPECT_EQ(half, *found) << "slot " << slot;
    });
    return *found;
  }
  template <class F>
  void each(KVCache& cache, SeqId sequence, int slot, F&& f) {
    const int page = cache.pages(sequence)[static_cast<size_t>(slot / kPageSlots)];
    for (int l = 0; l < cache.layers(); ++l) {
      const KvLayer layer = cache.layer(l);
      auto* k = reinterpret_cast<uint16_t*>(layer.base + layer.page_stride * page);
      auto* v = k + layer.kv_heads * layer.head_dim * kPageSlots;
      for (int i = 0; i < layer.kv_heads * layer.head_dim; ++i)
        f(k[i * kPageSlots + slot % kPageSlots]);
      for (int h = 0; h < layer.kv_heads; ++h) {
        for (int d = 0; d < layer.head_dim; ++d) {
          f(v[(h * kPageSlots + slot % kPageSlots) * layer.head_dim + d]);
        }
      }
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
};

TEST_F(KvCacheTest, RollbackGivesEveryPageBack) {
  KVCache cache(*backend_, kShapes, 4);
  const SeqId a = cache.open();
  {
    auto tail = cache.reserve(a, 3 * kPageSlots);
    ASSERT_TRUE(tail);
    EXPECT_EQ(cache.free_pages(), 1);
    EXPECT_EQ(tail->first_slot(), 0);
  }
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_EQ(cache.committed(a), 0);
}

TEST_F(KvCacheTest, ReserveIsRefusedWithoutSideEffects) {
  KVCache cache(*backend_, kShapes, 2);
  const SeqId a = cache.open();
  EXPECT_FALSE(cache.reserve(a, 2 * kPageSlots + 1));
  EXPECT_EQ(cache.free_pages(), 2);
  auto tail = cache.reserve(a, 2 * kPageSlots);
  EXPECT_TRUE(tail);
}

// C124: all drafts rejected behind a page boundary, then the sequence ends.
TEST_F(KvCacheTest, CommitAcrossAPageBoundaryKeepsTheBalance) {
  KVCache cache(*backend_, kShapes, 3);
  const SeqId a = cache.open();
  auto first = cache.reserve(a, kPageSlots - 1);
  cache.commit_all(std::move(*first));
  auto tail = cache.reserve(a, 7);
  EXPECT_EQ(cache.free_pages(), 1);
  cache.commit(std::move(*tail), std::vector<int>{0});
  EXPECT_EQ(cache.committed(a), kPageSlots);
  EXPECT_EQ(cache.free_pages(), 2);
  cache.close(a);
  EXPECT_EQ(cache.free_pages(), cache.total_pages());
}

TEST_F(KvCacheTest, RandomStepsKeepExactlyTheAcceptedRows) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    KVCache cache(*backend_, kShapes, 24);
    struct Expected {
      SeqId id;
      std::vector<uint16_t> values;
    };
    std::vector<Expected> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back({cache.open(), {}});
    uint16_t next = 1;
    for (int step = 0; step < 40; ++step) {
      Expected& sequence = sequences[random() % sequences.size()];
      const int rows = 1 + static_cast<int>(random() % 40);
      auto tail = cache.reserve(sequence.id, rows);
      if (!tail) {
        cache.truncate(sequence.id, static_cast<int>(sequence.values.size() / 2));
        sequence.values.resize(sequence.values.size() / 2);
        continue;
      }
      std::vector<int> kept;
      for (int row = 0; row < rows; ++row) {
        write(cache, sequence.id, tail->first_slot() + row, next);
        if (random() % 3 == 0) {
          kept.push_back(row);
          sequence.values.push_back(next);
        }
        ++next;
      }
      cache.commit(std::move(*tail), kept);
      cache.poison_uncommitted();
      int pages = 0;
      for (const Expected& other : sequences) {
        ASSERT_EQ(cache.committed(other.id), static_cast<int>(other.values.size()));
        for (size_t slot = 0; slot < other.values.size(); ++slot) {
          ASSERT_EQ(read(cache, other.id, static_cast<int>(slot)), other.values[slot]);
        }
        pages += KVCache::pages_for(static_cast<int>(other.values.size()));
      }
      ASSERT_EQ(cache.free_pages(), cache.total_pages() - pages);
    }
    for (const Expected& sequence : sequences) cache.close(sequence.id);
    EXPECT_EQ(cache.free_pages(), cache.total_pages());
  }
}

TEST_F(KvCacheTest, PoisonReachesEverySlotThatIsNotCommitted) {
  KVCache cache(*backend_, kShapes, 2);
  const SeqId a = cache.open();
  auto tail = cache.reserve(a, 5);
  for (int slot = 0; slot < 5; ++slot) write(cache, a, slot, 3);
  cache.commit(std::move(*tail), std::vector<int>{0, 1});
  cache.poison_uncommitted();
  EXPECT_EQ(read(cache, a, 0), 3);
  EXPECT_EQ(read(cache, a, 1), 3);
  for (int slot = 2; slot < kPageSlots; ++slot) EXPECT_EQ(read(cache, a, slot) & 0x7c00, 0x7c00);
}

TEST_F(KvCacheTest, MisuseAborts) {
  KVCache cache(*backend_, kShapes, 4);
  const SeqId a = cache.open();
  auto tail = cache.reserve(a, 4);
  EXPECT_DEATH(cache.reserve(a, 1), "has_tail");
  EXPECT_DEATH(cache.close(a), "has_tail");
  EXPECT_DEATH(cache.commit(std::move(*tail), std::vector<int>{1, 1}), "kept");
  EXPECT_DEATH(cache.commit(std::move(*tail), std::vector<int>{4}), "kept");
}

}  // namespace
}  // namespace coppice
