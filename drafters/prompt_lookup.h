// Prompt lookup decoding: the last n tokens are looked up in the text so far, and what followed
// their latest occurrence is proposed. Source: Saxena 2023, "Prompt Lookup Decoding", function
// find_candidate_pred_tokens (n-gram 3, 10 tokens); here the latest match wins, not the first.
//
//   coppice generate --method prompt_lookup --set draft_length=3 ...
#pragma once

#include <cstdint>
#include <vector>

#include "core/flat_map.h"
#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct PromptLookupOptions {
  int max_ngram = 3;
  int min_ngram = 1;
  int draft_length = 10;

  template <class Visitor>
  void visit(Visitor& v) {
    v("max_ngram", max_ngram, "longest n-gram looked up, tried first", Range{1, 16});
    v("min_ngram", min_ngram, "shortest n-gram looked up", Range{1, 16});
    v("draft_length", draft_length, "tokens proposed a step", Range{1, 256});
  }
};

class PromptLookup : public Drafter {
 public:
  explicit PromptLookup(const PromptLookupOptions& options);
  Needs needs() const override { return {.most_nodes = options_.draft_length}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  /// Where the n-grams of a sequence ended. The cost of a look-up is independent of the length of
  /// the text; memory is about 28 bytes for each token and n-gram size.
  struct Index {
    int indexed = 0;                // n-grams that end before this position are in
    FlatMap last_end;               // hash of an n-gram -> position of its last token
    std::vector<int32_t> previous;  // (position, n - min_ngram): where that n-gram ended before
    HitHistory hits;
  };
  struct Match {
    int end = -1;  // position of its last token; -1: none
    int ngram = 0;
  };
  void catch_up(Index& index, std::span<const int32_t> tokens) const;
  Match find(const Index& index, std::span<const int32_t> tokens) const;
  void draft(Index& index, Match match, DraftJob& job);

  PromptLookupOptions options_;
  std::vector<Index> index_;     // by SeqId
  std::vector<int32_t> others_;  // earlier occurrences that agree with the draft so far
};

}  // namespace coppice
