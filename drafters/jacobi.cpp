// See jacobi.h.
#include "drafters/jacobi.h"

namespace coppice {

void Jacobi::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    if (static_cast<size_t>(job.sequence) >= guesses_.size()) {
      guesses_.resize(static_cast<size_t>(job.sequence) + 1);
    }
    const std::vector<int32_t>& guesses = guesses_[static_cast<size_t>(job.sequence)];
    // Alg. 1, l. 2: positions without a guess start from a constant; the last known token serves.
    int32_t guess = job.tokens.back();
    int node = 0;
    for (int i = 0; i < options_.draft_length && node >= 0; ++i) {
      if (static_cast<size_t>(i) < guesses.size()) guess = guesses[static_cast<size_t>(i)];
      node = job.tree->add({.parent = node, .token = guess});
    }
  }
}

void Jacobi::observe(std::span<const Observation> observations) {
  for (const Observation& seen : observations) {
    if (seen.tree == nullptr || static_cast<size_t>(seen.sequence) >= guesses_.size()) continue;
    std::vector<int32_t>& guesses = guesses_[static_cast<size_t>(seen.sequence)];
    guesses.clear();
    // Alg. 1, l. 5: y(k+1) = argmax p(. | y(k)). The token behind the accepted path is emitted by
    // now; what the target says behind the nodes after it are the new guesses.
    for (int node = static_cast<int>(seen.path.size()) + 1; node < seen.tree->size(); ++node) {
      guesses.push_back(seen.top_ids(seen.node_row[static_cast<size_t>(node)]).front());
    }
  }
}

void Jacobi::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < guesses_.size()) {
    guesses_[static_cast<size_t>(sequence)].clear();
  }
}

}  // namespace coppice
