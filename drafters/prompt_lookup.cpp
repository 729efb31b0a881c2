// See prompt_lookup.h.
#include "drafters/prompt_lookup.h"

#include <algorithm>

namespace coppice {
namespace {

constexpr int kLongestContext = 32;  // longer ones count as this long
constexpr uint64_t kEmptyHash = 0xcbf29ce484222325u;
constexpr int kMostOthers = 8;  // earlier occurrences that are asked whether they agree
constexpr RecurrencePrior kPrior = {
    .bias = -0.8f, .context = 0.62f, .agree = 0.85f, .disagree = -1.2f, .hits = 0.9f};

/// The hash of an n-gram from that of its last n - 1 tokens and the token before them.
uint64_t extend_hash(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

int common_suffix(std::span<const int32_t> tokens, int a, int b, int most) {
  int length = 0;
  while (length < most && length <= a &&
         tokens[static_cast<size_t>(a - length)] == tokens[static_cast<size_t>(b - length)]) {
    ++length;
  }
  return length;
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
    index.hits.settle(job.tokens);
    catch_up(index, job.tokens);
    const Match match = find(index, job.tokens);
    if (match.end >= 0) draft(index, match, job);  // no match: no draft
  }
}

// The text's own end is not indexed: it would match itself.
void PromptLookup::catch_up(Index& index, std::span<const int32_t> tokens) const {
  const int last = static_cast<int>(tokens.size()) - 1;
  for (; index.indexed < last; ++index.indexed) {
    uint64_t hash = kEmptyHash;
    for (int n = 1; n <= options_.max_ngram; ++n) {
      const int first = index.indexed + 1 - n;
      if (first >= 0) hash = extend_hash(hash, tokens[static_cast<size_t>(first)]);
      if (n < options_.min_ngram) continue;
      int32_t none = -1;
      int32_t& end = first >= 0 ? index.last_end[hash] : none;
      index.previous.push_back(end);
      end = index.indexed;
    }
  }
}

// The longest n-gram first (find_candidate_pred_tokens, its outer loop), its latest occurrence.
PromptLookup::Match PromptLookup::find(const Index& index, std::span<const int32_t> tokens) const {
  const int last = static_cast<int>(tokens.size()) - 1;
  Match best;
  uint64_t hash = kEmptyHash;
  for (int n = 1; n <= std::min(options_.max_ngram, last); ++n) {
    hash = extend_hash(hash, tokens[static_cast<size_t>(last + 1 - n)]);
    if (n < options_.min_ngram) continue;
    const int32_t* end = index.last_end.find(hash);
    if (end == nullptr) break;  // what is longer did not occur either
    if (common_suffix(tokens, *end, last, n) == n) best = {*end, n};
  }
  return best;
}

void PromptLookup::draft(Index& index, Match match, DraftJob& job) {
  const std::span<const int32_t> tokens = job.tokens;
  const int last = static_cast<int>(tokens.size()) - 1;
  const int context = common_suffix(tokens, match.end, last, kLongestContext);
  others_.clear();
  const size_t sizes = static_cast<size_t>(options_.max_ngram - options_.min_ngram + 1);
  const size_t size = static_cast<size_t>(match.ngram - options_.min_ngram);
  for (int end = match.end; static_cast<int>(others_.size()) < kMostOthers;) {
    end = index.previous[static_cast<size_t>(end) * sizes + size];
    if (end < 0) break;
    others_.push_back(end);
  }
  index.hits.expect(tokens.size(), tokens[static_cast<size_t>(match.end) + 1]);
  int node = 0;
  for (int depth = 1; depth <= options_.draft_length && match.end + depth <= last; ++depth) {
    const int32_t token = tokens[static_cast<size_t>(match.end + depth)];
    const auto asked = static_cast<int>(others_.size());
    std::erase_if(others_,
                  [&](int end) { return tokens[static_cast<size_t>(end + depth)] != token; });
    const auto agree = static_cast<int>(others_.size());
    const float score = kPrior(context + depth - 1, 1 + agree, asked - agree, index.hits.rate());
    node = job.tree->add({.parent = node, .token = token, .score = score});
    if (node < 0) break;
  }
}

void PromptLookup::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < index_.size()) index_[static_cast<size_t>(sequence)] = {};
}

}  // namespace coppice
