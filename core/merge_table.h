// The pairs of tokens that a vocabulary lists as merges, by rank.
// Source: Sennrich et al. 2016, algorithm 1.
//
//   MergeTable merges(vocabulary, token_ids);
//   merges.find(left, right);   // {rank, id of the joined token}, or empty
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "core/merge_symbols.h"
#include "core/tokenizer.h"

namespace coppice {

class MergeTable {
 public:
  /// `token_ids`: text to id; used here only. Throws Error naming a merge that does not fit. A
  /// merge whose result is no normal token is left out: ordinary text must not grow into a control
  /// token.
  MergeTable(const Vocabulary& vocabulary,
             const std::unordered_map<std::string_view, int32_t>& token_ids);

  std::optional<Merge> find(const Symbol& left, const Symbol& right) const;

 private:
  std::unordered_map<uint64_t, Merge> merges_;  // key: left id, right id
};

}  // namespace coppice
