// See jacobi.h.
#include "drafters/jacobi.h"

namespace coppice {

Jacobi::State& Jacobi::state_of(SeqId sequence) {
  if (static_cast<size_t>(sequence) >= states_.size()) {
    states_.resize(static_cast<size_t>(sequence) + 1);
  }
  return states_[static_cast<size_t>(sequence)];
}

void Jacobi::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    State& state = state_of(job.sequence);
    state.proposed.clear();
    for (HitHistory& hits : state.hits) hits.settle(job.tokens);
    // Alg. 1, l. 2: positions without a guess start from a constant; the last known token serves.
    Guess guess{job.tokens.back(), false};
    int node = 0;
    for (int i = 0; i < options_.draft_length; ++i) {
      if (static_cast<size_t>(i) < state.guesses.size()) {
        guess = state.guesses[static_cast<size_t>(i)];
      } else {
        guess.settled = false;
      }
      node = job.tree->add(
          {.parent = node, .token = guess.token, .score = state.hits[guess.settled].rate()});
      if (node < 0) break;
      if (i == 0) {
        state.hits[guess.settled].expect(job.tokens.size(), guess.token);
      }
      state.proposed.push_back(guess);
    }
  }
}

void Jacobi::observe(std::span<const Observation> observations) {
  for (const Observation& seen : observations) {
    if (seen.tree == nullptr) continue;
    State& state = state_of(seen.sequence);
    // Alg. 1, l. 5: y(k+1) = argmax p(. | y(k)). Tokens up to the new node 0 are certain by now;
    // what the target says behind the nodes that stood there and further on are the new guesses.
    const int certain = static_cast<int>(seen.tokens.size()) - 1 - seen.root_position();
    state.guesses.clear();
    for (int own = certain; own < seen.own_size(); ++own) {
      if (seen.node_of(own) < 0) break;
      const int32_t token = seen.top_ids_of(seen.node_of(own)).front();
      // The old guess for the same position stood one node further on.
      const bool settled = own < static_cast<int>(state.proposed.size()) &&
                           state.proposed[static_cast<size_t>(own)].token == token;
      state.guesses.push_back({token, settled});
    }
    state.proposed.clear();
  }
}

void Jacobi::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < states_.size()) {
    states_[static_cast<size_t>(sequence)] = {};
  }
}

}  // namespace coppice
