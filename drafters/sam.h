// SAM decoding: a suffix automaton of the text so far gives the longest suffix that occurred before
// in constant time a token, and what followed its first occurrence is proposed, longer the longer
// the match. A second automaton may hold a text that is given. Source: Hu 2024, "SAM Decoding:
// Speculative Decoding via Suffix Automaton", section 3 and Algorithms 1 to 3 (40 tokens, 4 for
// each token matched; the static automaton wins by more than 5).
//
//   coppice generate --method sam --set corpus=\"notes.txt\" ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/flat_map.h"
#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct SamOptions {
  int draft_length = 40;
  double alpha = 4.0;
  std::string corpus;
  int static_bias = 5;

  template <class Visitor>
  void visit(Visitor& v) {
    v("draft_length", draft_length, "most tokens proposed a step", Range{1, 256});
    v("alpha", alpha, "tokens proposed for each token matched", Range{0.1, 64});
    v("corpus", corpus, "text file for a static automaton, at most 16 MiB; empty: none");
    v("static_bias", static_bias, "tokens by which a match in the corpus must be longer",
      Range{0, 256});
  }
};

/// The suffix automaton of a growing text. At most 2 states and 3 edges a token: about 150 bytes.
class SuffixAutomaton {
 public:
  /// The longest suffix of some text that occurs in the automaton's: its state and length.
  struct Match {
    int32_t state = 0;
    int32_t length = 0;
  };
  void append(int32_t token);
  /// The match of that text when `token` is appended to it.
  Match advance(Match match, int32_t token) const;
  /// Where the match first ended: index of its last token in the text. The match is not empty.
  int32_t first_end(Match match) const { return states_[index(match.state)].first_end; }
  /// Different tokens that followed the match.
  int32_t followers(Match match) const { return states_[index(match.state)].edges; }
  const std::vector<int32_t>& text() const { return text_; }

 private:
  struct State {
    int32_t link = -1;
    int32_t length = 0;  // of its longest string
    int32_t first_end = -1;
    int32_t first_edge = -1;
    int32_t edges = 0;
  };
  struct Edge {
    int32_t token, target, next;
  };
  static size_t index(int32_t i) { return static_cast<size_t>(i); }
  void add_edge(int32_t from, int32_t token, int32_t target);
  int32_t* target(int32_t from, int32_t token);

  std::vector<int32_t> text_;
  std::vector<State> states_ = std::vector<State>(1);
  std::vector<Edge> edges_;
  FlatMap edge_;  // step_key(state, token) -> index in edges_
  int32_t last_ = 0;
};

class SamDecoding : public Drafter {
 public:
  /// Throws Error when the corpus cannot be read.
  SamDecoding(const SamOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = options_.draft_length}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  struct State {
    SuffixAutomaton dynamic;                     // of prompt and answer
    SuffixAutomaton::Match match, static_match;  // of the text's end
    HitHistory hits;
  };
  void draft(const SuffixAutomaton& automaton, SuffixAutomaton::Match match, State& state,
             DraftJob& job) const;

  SamOptions options_;
  SuffixAutomaton static_;
  std::vector<State> states_;  // by SeqId
};

}  // namespace coppice
