// Prompt lookup decoding: the last n tokens are looked up in the text so far, and what followed
// their latest occurrence is proposed. Source: Saxena 2023, "Prompt Lookup Decoding", function
// find_candidate_pred_tokens (n-gram 3, 10 tokens); here the latest match wins, not the first.
//
//   coppice generate --method prompt_lookup --set draft_length=3 ...
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

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
  /// Where each n-gram of a sequence ended last: hash of the n-gram -> position of its last token.
  /// Lookup cost is independent of the length of the text.
  struct Index {
    int indexed = 0;  // n-grams that end before this position are in
    std::unordered_map<uint64_t, int> last_end;
  };
  void catch_up(Index& index, std::span<const int32_t> tokens) const;
  int find(const Index& index, std::span<const int32_t> tokens) const;

  PromptLookupOptions options_;
  std::vector<Index> index_;  // by SeqId
};

}  // namespace coppice
