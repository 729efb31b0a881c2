// SuffixDecoding: the longest suffixes of the text so far are found in a suffix tree of this
// request and in one of finished answers; what followed them, with the counts of how often, is
// grown into a token tree. Source: Oliaro 2024, "SuffixDecoding: Extreme Speculative Decoding for
// Emerging AI Applications", section 4 (depth 64, factor 1.0, least probability 0.1).
//
//   coppice generate --method suffix --set max_spec_factor=2.0 ...
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/flat_map.h"
#include "decoding/recurrence.h"
#include "decoding/registry.h"

namespace coppice {

struct SuffixOptions {
  int max_depth = 64;
  double max_spec_factor = 1.0;
  double min_token_prob = 0.1;
  int max_nodes = 64;
  int global_tokens = 200000;

  template <class Visitor>
  void visit(Visitor& v) {
    v("max_depth", max_depth, "tokens of a match and its continuation together", Range{2, 256});
    v("max_spec_factor", max_spec_factor, "tokens proposed for each token matched",
      Range{0.01, 64});
    v("min_token_prob", min_token_prob, "least probability of a node's path", Range{0, 1});
    v("max_nodes", max_nodes, "most tokens proposed a step", Range{1, 256});
    v("global_tokens", global_tokens, "tokens of finished answers that are kept", Range{0, 1e8});
  }
};

/// The suffixes of growing texts, each cut at `depth` tokens, and how often each was seen. What was
/// seen once is a single leaf that points into the text; it grows when it is seen again. Memory: at
/// most `depth` nodes of 36 to 60 bytes a token, about 3 in texts that are not copies of others.
class SuffixTree {
 public:
  explicit SuffixTree(int depth) : depth_(depth) {}

  /// Where a matched string ends: at a node, or, below a leaf, in the text: `next` is the index of
  /// the token that follows.
  struct Place {
    int32_t node = 0;
    int32_t next = 0;
  };
  struct Child {
    int32_t token = 0;
    int32_t count = 0;
    Place place;
  };
  /// Adds a token to the text. At most `depth` look-ups.
  void append(int32_t token);
  /// The next token begins another text.
  void end_text();
  /// Where the text's last 1, 2, ... tokens were seen before, as far as they were.
  const std::vector<Place>& repeated() const { return repeated_; }
  /// The same for another text: `places` of its last tokens move on by one token.
  void advance(std::vector<Place>& places, int32_t token) const;
  /// What followed: the token first seen last comes first. Returns the sum of the counts.
  int children(Place place, std::vector<Child>& out) const;
  int tokens() const { return static_cast<int>(text_.size()); }
  int depth() const { return depth_; }

 private:
  static constexpr int32_t kEnd = -1;  // in the text, between two texts
  struct Node {
    int32_t token = 0;
    int32_t first_child = -1, next_sibling = -1;
    int32_t count = 0;
    int32_t next = 0;  // of a leaf: index of the token that follows
  };
  int32_t insert(int32_t parent, int32_t token, int length);
  int32_t add_leaf(int32_t parent, int32_t token, int32_t next);

  int depth_;
  std::vector<int32_t> text_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  FlatMap child_;  // step_key(node, token) -> node
  std::vector<Place> repeated_;
};

class SuffixDecoding : public Drafter {
 public:
  explicit SuffixDecoding(const SuffixOptions& options);
  Needs needs() const override { return {.most_nodes = options_.max_nodes}; }
  void observe(std::span<const Observation> observations) override;
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  struct State {
    explicit State(int depth) : tree(depth) {}
    SuffixTree tree;                                       // of prompt and answer
    std::array<std::vector<SuffixTree::Place>, 2> global;  // of the text's end in global_
    int global_version = -1;                               // of global_ when that was found
    std::vector<int32_t> answer;
    int seen = -1;  // tokens known; -1: none observed yet
    HitHistory hits;
  };
  struct Node {
    int parent = 0;
    int length = 0;    // tokens matched before this one
    int siblings = 0;  // times that the same was followed by another token
    SuffixTree::Child child;
    double probability = 1.0;  // D(N)
    int order = 0;             // breaks ties
  };
  State& state_of(SeqId sequence);
  void absorb_finished();
  void catch_up(State& state, std::span<const int32_t> tokens);
  void speculate(const SuffixTree& tree, std::span<const SuffixTree::Place> places, int room);
  double expand(const SuffixTree& tree, SuffixTree::Place place, int length, int most);

  SuffixOptions options_;
  std::vector<State> states_;                   // by SeqId
  std::array<SuffixTree, 2> global_;            // finished answers: the older half and the younger
  int global_version_ = 0;                      // counts its changes
  std::vector<std::vector<int32_t>> finished_;  // answers that are not in yet
  double best_score_ = 0;
  std::vector<Node> best_, grown_, queue_;
  std::vector<SuffixTree::Child> children_;
  std::vector<int> index_;  // in the token tree, of node 0 and of best_
};

}  // namespace coppice
