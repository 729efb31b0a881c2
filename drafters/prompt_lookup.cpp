// See prompt_lookup.h.
#include "drafters/prompt_lookup.h"

#include <algorithm>

namespace coppice {
namespace {

uint64_t hash_of(std::span<const int32_t> ngram) {
  uint64_t hash = 0xcbf29ce484222325u + ngram.size();
  for (int32_t token : ngram) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

PromptLookup::PromptLookup(const PromptLookupOptions& options) : options_(options) {
  if (options.min_ngram > options.max_ngram) {
    throw Error("prompt_lookup: min_ngram {} is above max_ngram {}", options.min_ngram,
                options.max_ngram);
  }
}

void PromptLookup::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    if (static_cast<size_t>(job.sequence) >= index_.size()) {
      index_.resize(static_cast<size_t>(job.sequence) + 1);
    }
    Index& index = index_[static_cast<size_t>(job.sequence)];
    catch_up(index, job.tokens);
    const int end = find(index, job.tokens);
    if (end < 0) continue;  // no match: no draft
    const auto follows = job.tokens.subspan(static_cast<size_t>(end) + 1);
    int node = 0;
    for (int32_t token :
         follows.first(std::min(follows.size(), static_cast<size_t>(options_.draft_length)))) {
      node = job.tree->add({.parent = node, .token = token});
      if (node < 0) break;
    }
  }
}

// The text's own end is not indexed: it would match itself.
void PromptLookup::catch_up(Index& index, std::span<const int32_t> tokens) const {
  const int last = static_cast<int>(tokens.size()) - 1;
  for (; index.indexed < last; ++index.indexed) {
    const int end = index.indexed + 1;
    for (int n = options_.min_ngram; n <= std::min(options_.max_ngram, end); ++n) {
      const auto ngram = tokens.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n));
      index.last_end[hash_of(ngram)] = index.indexed;
    }
  }
}

// Position of the last token of the longest match's latest occurrence; -1: none.
int PromptLookup::find(const Index& index, std::span<const int32_t> tokens) const {
  const int size = static_cast<int>(tokens.size());
  for (int n = std::min(options_.max_ngram, size - 1); n >= options_.min_ngram; --n) {
    const auto wanted = tokens.last(static_cast<size_t>(n));
    const auto found = index.last_end.find(hash_of(wanted));
    if (found == index.last_end.end() || found->second + 1 < n) continue;
    const auto there =
        tokens.subspan(static_cast<size_t>(found->second + 1 - n), static_cast<size_t>(n));
    if (std::equal(wanted.begin(), wanted.end(), there.begin())) return found->second;
  }
  return -1;
}

void PromptLookup::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < index_.size()) index_[static_cast<size_t>(sequence)] = {};
}

}  // namespace coppice
