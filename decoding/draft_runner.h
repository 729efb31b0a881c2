// A draft model at work: its own cache of every sequence, and the tree it is growing there level by
// level. What the target then accepts of a tree stays in the cache, the rest is rolled back.
//
//   Grown& grown = runner.begin(sequence, tokens, 8);   // fed up to the last token, node 0
//   runner.run(all);                                    // all: pointers to what was begun
//   runner.logits(grown, grown.root_row());
//   int row = runner.add(grown, grown.root_row(), token);
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/kv_cache.h"
#include "decoding/draft_rows.h"
#include "decoding/packed_batch.h"

namespace coppice {

class DraftRunner {
 public:
  /// A sequence's place in the draft model's cache: the tokens committed there, and the tail with
  /// the rows of the trunk and the tree behind it.
  class Grown {
   public:
    int root_row() const { return rows_.root(); }

   private:
    friend class DraftRunner;
    SeqId kv_ = -1;
    std::vector<int32_t> fed_;
    std::optional<KVCache::Tail> tail_;
    DraftRows rows_;        // of the tail
    int first_wanted_ = 0;  // of the last forward: the first row with logits,
    int first_logits_ = 0;  // and where these stand in its output
  };

  /// For trees of at most `most_nodes` nodes, at most `most_wide` of them in one forward.
  DraftRunner(const Model& model, Backend& backend, int sequences, int context, int most_nodes,
              int most_wide);

  /// Positions a sequence may have in the draft model.
  int context() const { return context_; }
  /// Brings the cache up to the last of `tokens` (at most context() of them), which is fed with the
  /// next run(). Catching up with a long text takes forwards of its own.
  Grown& begin(SeqId sequence, std::span<const int32_t> tokens);
  /// Row of `token` under a row of the tail; the one that is there when they are the same tokens.
  int add(Grown& grown, int parent_row, int32_t token);
  /// Forwards what was added since the last run.
  void run(std::span<Grown* const> all);
  /// Behind a row of the last run, node 0 the first of them; valid until the next.
  std::span<const float> logits(const Grown& grown, int row) const;
  void forget(SeqId sequence);
  /// Pages in use are free again once every sequence is forgotten.
  const KVCache& cache() const { return cache_; }

 private:
  void settle(Grown& grown, std::span<const int32_t> tokens);
  void feed(Grown& grown, std::span<const int32_t> tokens);

  const Model* model_;
  int context_;
  int most_nodes_;
  KVCache cache_;
  Workspace workspace_;
  PackedBatch packed_;
  ForwardOutput output_;
  std::deque<Grown> grown_;  // by SeqId; growth moves none
};

}  // namespace coppice
