// See merge_table.h.
#include "core/merge_table.h"

#include <string>

#include "core/quote.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const Vocabulary& vocabulary,
                       const std::unordered_map<std::string_view, int32_t>& token_ids) {
  const auto find_id = [&](std::string_view text) {
    const auto found = token_ids.find(text);
    return found == token_ids.end() ? -1 : found->second;
  };
  merges_.reserve(vocabulary.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view merge = vocabulary.merges[rank];
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
      throw Error("{}: {}merges[{}] is {}; expected two tokens and one space", vocabulary.name,
                  vocabulary.keys, rank, quote(merge));
    }
    joined = merge.substr(0, space);
    joined += merge.substr(space + 1);
    const int32_t left = find_id(merge.substr(0, space));
    const int32_t right = find_id(merge.substr(space + 1));
    const int32_t result = find_id(joined);
    if (left < 0 || right < 0 || result < 0) {
      throw Error(
          "{}: {}merges[{}] is {}, but the tokens lack one of its parts or the joined one; the "
          "file is damaged, fetch it again",
          vocabulary.name, vocabulary.keys, rank, quote(merge));
    }
    if (vocabulary.types[static_cast<size_t>(result)] != TokenType::normal) continue;
    merges_.try_emplace(pair_key(left, right), Merge{static_cast<float>(rank), result});
  }
}

std::optional<Merge> MergeTable::find(const Symbol& left, const Symbol& right) const {
  const auto found = merges_.find(pair_key(left.id, right.id));
  if (found == merges_.end()) return std::nullopt;
  return found->second;
}

}  // namespace coppice
