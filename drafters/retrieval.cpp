// See retrieval.h.
#include "drafters/retrieval.h"

#include <algorithm>
#include <limits>

namespace coppice {
namespace {

constexpr RecurrencePrior kPrior = {
    .bias = -3.4f, .context = 0.7f, .agree = 0.5f, .disagree = -0.6f, .hits = 1.5f};

/// A continuation seen in fewer than one in this many cases of its parent is left out: it could be
/// among the nodes seen most only where everything is that rare.
constexpr size_t kRarest = 64;

int clamped(size_t count) {
  return static_cast<int>(std::min<size_t>(count, std::numeric_limits<int>::max() - 1));
}

}  // namespace

Retrieval::Retrieval(const RetrievalOptions& options, const MethodParts& parts)
    : options_(options) {
  if (options.datastore.empty()) {
    throw Error(
        "retrieval: no datastore; build one with `coppice datastore build` and name it "
        "with --set datastore=\"FILE\"");
  }
  if (options.min_context > options.max_context) {
    throw Error("retrieval: min_context {} is above max_context {}", options.min_context,
                options.max_context);
  }
  store_ = std::make_unique<Datastore>(options.datastore);
  const Vocabulary& vocabulary = parts.tokenizer->vocabulary();
  if (store_->vocabulary() != parts.tokenizer->size()) {
    throw Error(
        "{}: made for a tokenizer of {} tokens, the target's has {}; build one with "
        "`coppice datastore build` for this model",
        store_->name(), store_->vocabulary(), parts.tokenizer->size());
  }
  const uint64_t fingerprint = tokenizer_fingerprint(vocabulary);
  if (store_->tokenizer() != fingerprint) {
    throw Error(
        "{}: made for another tokenizer (its tokens, merges or pre-tokenizer differ: "
        "fingerprint {:016x}, the target's {:016x}); build one with `coppice datastore "
        "build` for this model",
        store_->name(), store_->tokenizer(), fingerprint);
  }
}

// Section 3.2: contexts are tried from the longest down. Where one occurs its suffixes do, too, so
// halving finds the same length.
int Retrieval::longest_context(std::span<const int32_t> tokens, Datastore::Range& range) const {
  int found = 0;
  int low = options_.min_context;
  int high = std::min(options_.max_context, static_cast<int>(tokens.size()));
  while (low <= high) {
    const int length = found == 0 ? low : (low + high + 1) / 2;
    const Datastore::Range at = store_->find(tokens.last(static_cast<size_t>(length)));
    if (at.size() == 0) {
      high = length - 1;
    } else {
      found = length;
      range = at;
      low = length + 1;
    }
  }
  return found;
}

// The order of the heap: the string seen most on top, of equals the shorter, then the first.
bool Retrieval::less_often(const Node& a, const Node& b) {
  if (a.range.size() != b.range.size()) return a.range.size() < b.range.size();
  return a.depth != b.depth ? a.depth > b.depth : a.range.first > b.range.first;
}

// What followed a node, seen often enough, in token order. The range is sorted, so a token seen in
// one of kRarest cases stands at one of that many evenly spaced places.
void Retrieval::push_children(const Node& node, int index, int context) {
  const size_t stride = (node.range.size() + kRarest - 1) / kRarest;
  for (size_t place = node.range.first; place < node.range.last;) {
    const int32_t token = store_->token(place, context + node.depth);
    const Datastore::Range child = store_->narrow(node.range, context + node.depth, token);
    if (token != Datastore::kEnd && kRarest * child.size() >= node.range.size()) {
      queue_.push_back({index, node.depth + 1, token, child, node.range.size() - child.size()});
      std::push_heap(queue_.begin(), queue_.end(), less_often);
    }
    const size_t steps = std::max<size_t>(1, (child.last - place + stride - 1) / stride);
    place += steps * stride;
  }
}

void Retrieval::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    if (static_cast<size_t>(job.sequence) >= hits_.size()) {
      hits_.resize(static_cast<size_t>(job.sequence) + 1);
    }
    HitHistory& hits = hits_[static_cast<size_t>(job.sequence)];
    hits.settle(job.tokens);
    Node at;
    const int context = longest_context(job.tokens, at.range);
    if (context == 0) continue;
    // Section 3.2: the prefixes of the continuations form a trie; those seen most are kept. A
    // prefix is seen at least as often as what it begins, so the most frequent come in tree order.
    queue_.clear();
    push_children(at, 0, context);
    while (!queue_.empty() && job.tree->room() > 0) {
      std::pop_heap(queue_.begin(), queue_.end(), less_often);
      at = queue_.back();
      queue_.pop_back();
      const float score =
          kPrior(context + at.depth - 1, clamped(at.range.size()), clamped(at.others), hits.rate());
      const int node = job.tree->add({.parent = at.parent, .token = at.token, .score = score});
      if (node < 0) continue;  // too deep for this step
      if (node == 1) hits.expect(job.tokens.size(), at.token);
      if (at.depth < options_.continuation) push_children(at, node, context);
    }
  }
}

void Retrieval::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < hits_.size()) hits_[static_cast<size_t>(sequence)] = {};
}

}  // namespace coppice
