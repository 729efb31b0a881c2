// See row_placement.h.
#include "core/row_placement.h"

#include "core/kv_cache.h"
#include "kernels/base/error.h"

namespace coppice {

// Slots and keys of every row. A row whose ancestors stand in the slots right behind the committed
// ones needs no list; any other lists its ancestors' slots from the first that stands elsewhere.
void place_rows(std::span<const int32_t> parents, std::span<const SequenceRows> sequences,
                PlacedRows& placed_rows) {
  placed_rows.rows.clear();
  placed_rows.tail_slots.clear();
  placed_rows.pages.clear();
  for (const SequenceRows& sequence : sequences) {
    const int written = static_cast<int>(sequence.written.size());
    const int tail_rows = written + sequence.count;
    COPPICE_CHECK(sequence.first == static_cast<int>(placed_rows.rows.size()));
    COPPICE_CHECK(KVCache::pages_for(sequence.committed + tail_rows) <=
                  static_cast<int>(sequence.pages.size()));
    const auto page_table = static_cast<int32_t>(placed_rows.pages.size());
    placed_rows.pages.insert(placed_rows.pages.end(), sequence.pages.begin(), sequence.pages.end());
    placed_rows.tail.clear();
    for (int i = 0; i < tail_rows; ++i) {
      const int parent = i < written ? sequence.written[static_cast<size_t>(i)]
                                     : parents[static_cast<size_t>(sequence.first + i - written)];
      COPPICE_CHECK(parent >= -1 && parent < i);
      AttentionRow placed;
      placed.slot = sequence.committed + i;
      placed.page_table = page_table;
      placed.tail = static_cast<int32_t>(placed_rows.tail_slots.size());
      placed.prefix = sequence.committed;
      placed.position = sequence.committed;
      if (parent >= 0) {
        const AttentionRow above = placed_rows.tail[static_cast<size_t>(parent)];
        placed.position = above.position + 1;
        placed.prefix = above.prefix;
        for (int k = 0; k < above.position + 1 - above.prefix; ++k) {
          const int32_t slot = placed_rows.tail_slots[static_cast<size_t>(above.tail + k)];
          placed_rows.tail_slots.push_back(slot);
        }
      }
      if (placed.slot == placed.position && placed.prefix == placed.position) {
        placed.prefix = placed.position + 1;
      } else {
        placed_rows.tail_slots.push_back(placed.slot);
      }
      placed_rows.tail.push_back(placed);
      if (i >= written) placed_rows.rows.push_back(placed);
    }
  }
}

}  // namespace coppice
