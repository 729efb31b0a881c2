// Lookahead decoding: a window of Jacobi trajectories is carried along as probe nodes, the n-grams
// that it yields are kept in a pool, and those that begin with the last token are verified. Source:
// Fu 2024, "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding", Alg. 2 and
// section 3; where the paper is silent, its published code (window filled level by level, moved by
// one position a step, sets of n-grams kept in order of last use).
//
// One tree holds both branches. Its window with N = 4 and W = 3, (level, column):
//
//   level 0: node 0 ─ (0,1) ─ (0,2)   a chain that starts at node 0: the oldest trajectory
//   level 1:  (1,0)   (1,1)   (1,2)   column c hangs under column c of the level before
//   level 2:  (2,0)   (2,1)   (2,2)   what the target says behind it ends an n-gram
//
// Verify nodes under node 0 are the pool's n-grams that begin with its token, shared where alike.
//
//   coppice generate --method lookahead --set window=15 ...
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct LookaheadOptions {
  int ngram = 5;
  int window = 7;
  int guesses = 7;
  bool pool_from_prompt = false;

  template <class Visitor>
  void visit(Visitor& v) {
    v("ngram", ngram, "N: tokens of an n-gram, the one it is found by included", Range{3, 16});
    v("window", window, "W: positions that are looked ahead", Range{1, 64});
    v("guesses", guesses, "G: n-grams kept and verified for a token", Range{1, 64});
    v("pool_from_prompt", pool_from_prompt, "the prompt's own n-grams are in the pool at first");
  }
};

class Lookahead : public Drafter {
 public:
  explicit Lookahead(const LookaheadOptions& options) : options_(options) {}
  Needs needs() const override;
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  using Tokens = std::vector<int32_t>;
  /// N-grams by their first token: what follows it, the least recently seen first.
  using Pool = std::unordered_map<int32_t, std::vector<Tokens>>;

  struct State {
    bool begun = false;
    /// level[0][i] stands at column i + 1 (column 0 is node 0), level[l][i] at column i. A token
    /// of column c and level l is a guess for the position c + l behind node 0.
    std::vector<Tokens> level;
    Pool pool;
    /// Own nodes: of the last level's columns, column 0 first; empty: the window did not fit.
    std::vector<int> last_level;
    HitHistory hits;  // of the newest n-gram
  };
  State& state_of(SeqId sequence);
  void begin(State& state, std::span<const int32_t> tokens) const;
  void add_to_pool(Pool& pool, int32_t key, Tokens follows) const;
  void grow_window(State& state, TokenTree& tree) const;
  void grow_guesses(State& state, size_t position, TokenTree& tree) const;
  void move_window(State& state, int32_t root, Tokens results) const;

  LookaheadOptions options_;
  std::vector<State> states_;  // by SeqId
};

}  // namespace coppice
