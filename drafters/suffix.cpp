// See suffix.h.
#include "drafters/suffix.h"

#include <algorithm>
#include <utility>

namespace coppice {

// Section 4.1: every suffix of the text ends at a node. Those that were seen before are listed in
// repeated_; all longer ones are leaves, and leaves grow by themselves with the text.
void SuffixTree::append(int32_t token) {
  text_.push_back(token);
  size_t repeats = 0;
  int32_t node = 0;
  const size_t known = repeated_.size();
  for (size_t length = 0; length <= known && length < static_cast<size_t>(depth_); ++length) {
    const int32_t child = insert(node, token, static_cast<int>(length) + 1);
    if (length < known) {
      node = repeated_[length].node;
    } else {
      repeated_.push_back({});
    }
    repeated_[length] = {child, 0};
    if (nodes_[static_cast<size_t>(child)].count > 1) repeats = length + 1;
  }
  repeated_.resize(repeats);
}

void SuffixTree::end_text() {
  text_.push_back(kEnd);
  repeated_.clear();
}

// Counts a string of `length` tokens. One that is seen the second time becomes an inner node: what
// followed it the first time moves into a leaf below it.
int32_t SuffixTree::insert(int32_t parent, int32_t token, int length) {
  const int32_t* found = child_.find(step_key(parent, token));
  if (found == nullptr) return add_leaf(parent, token, static_cast<int32_t>(text_.size()));
  const int32_t node = *found;
  Node& known = nodes_[static_cast<size_t>(node)];
  if (++known.count == 2 && length < depth_) {
    const int32_t follows = text_[static_cast<size_t>(known.next)];
    if (follows != kEnd) add_leaf(node, follows, known.next + 1);
  }
  return node;
}

int32_t SuffixTree::add_leaf(int32_t parent, int32_t token, int32_t next) {
  const auto leaf = static_cast<int32_t>(nodes_.size());
  child_[step_key(parent, token)] = leaf;
  int32_t& first = nodes_[static_cast<size_t>(parent)].first_child;
  const int32_t sibling = std::exchange(first, leaf);
  nodes_.push_back({.token = token, .next_sibling = sibling, .count = 1, .next = next});
  return leaf;
}

void SuffixTree::advance(std::vector<Place>& places, int32_t token) const {
  Place from;  // the empty string, then the last 1, 2, ... tokens before this one
  for (size_t i = 0; i < static_cast<size_t>(depth_); ++i) {
    const Node& node = nodes_[static_cast<size_t>(from.node)];
    Place to;
    if (from.node != 0 && node.count == 1) {
      const auto next = static_cast<size_t>(from.next);
      if (next < text_.size() && text_[next] == token) to = {from.node, from.next + 1};
    } else if (const int32_t* child = child_.find(step_key(from.node, token))) {
      to = {*child, nodes_[static_cast<size_t>(*child)].next};
    }
    const bool longest = i == places.size();
    if (to.node == 0) {  // then no longer string was seen either
      places.resize(i);
      return;
    }
    if (longest) {
      places.push_back(to);
      return;
    }
    from = std::exchange(places[i], to);
  }
}

int SuffixTree::children(Place place, std::vector<Child>& out) const {
  out.clear();
  const Node& node = nodes_[static_cast<size_t>(place.node)];
  if (place.node != 0 && node.count == 1) {
    const auto next = static_cast<size_t>(place.next);
    if (next >= text_.size() || text_[next] == kEnd) return 0;
    out.push_back({text_[next], 1, {place.node, place.next + 1}});
    return 1;
  }
  int sum = 0;
  for (int32_t at = node.first_child; at >= 0;) {
    const Node& child = nodes_[static_cast<size_t>(at)];
    out.push_back({child.token, child.count, {at, child.next}});
    sum += child.count;
    at = child.next_sibling;
  }
  return sum;
}

namespace {

constexpr RecurrencePrior kPrior = {
    .bias = -1.0f, .context = 0.7f, .agree = 0.75f, .disagree = -0.95f, .hits = 1.1f};

}  // namespace

SuffixDecoding::SuffixDecoding(const SuffixOptions& options)
    : options_(options), global_{SuffixTree(options.max_depth), SuffixTree(options.max_depth)} {}

SuffixDecoding::State& SuffixDecoding::state_of(SeqId sequence) {
  while (states_.size() <= static_cast<size_t>(sequence)) states_.emplace_back(options_.max_depth);
  return states_[static_cast<size_t>(sequence)];
}

void SuffixDecoding::propose(std::span<DraftJob> jobs) {
  absorb_finished();
  for (DraftJob& job : jobs) {
    State& state = state_of(job.sequence);
    state.hits.settle(job.tokens);
    catch_up(state, job.tokens);
    // Section 4.2: of the trees from this request and from finished answers, the one that promises
    // most.
    best_.clear();
    best_score_ = 0;
    speculate(state.tree, state.tree.repeated(), job.tree->room());
    for (size_t i = 0; i < global_.size(); ++i) {
      speculate(global_[i], state.global[i], job.tree->room());
    }
    index_.assign(1, 0);
    for (const Node& node : best_) {
      const int parent = index_[static_cast<size_t>(node.parent)];
      const float score = kPrior(node.length, node.child.count, node.siblings, state.hits.rate());
      index_.push_back(parent < 0 ? -1
                                  : job.tree->add({.parent = parent,
                                                   .token = node.child.token,
                                                   .score = score}));  // -1: it would be too deep
    }
    if (!best_.empty()) {
      state.hits.expect(job.tokens.size(), best_.front().child.token);
    }
  }
}

void SuffixDecoding::catch_up(State& state, std::span<const int32_t> tokens) {
  const auto known = static_cast<size_t>(state.tree.tokens());
  for (size_t i = known; i < tokens.size(); ++i) state.tree.append(tokens[i]);
  size_t from = known;
  if (state.global_version != global_version_) {  // leaves have moved
    state.global_version = global_version_;
    for (auto& places : state.global) places.clear();
    from = tokens.size() - std::min(tokens.size(), static_cast<size_t>(options_.max_depth));
  }
  for (size_t i = from; i < tokens.size(); ++i) {
    for (size_t g = 0; g < global_.size(); ++g) global_[g].advance(state.global[g], tokens[i]);
  }
}

// Section 4.2: for every length p of a matched suffix a tree of at most factor * p nodes; the one
// with the largest score is kept. A tree's score is at most its size, so short matches end the
// search.
void SuffixDecoding::speculate(const SuffixTree& tree, std::span<const SuffixTree::Place> places,
                               int room) {
  for (size_t length = places.size(); length > 0; --length) {
    const double most = options_.max_spec_factor * static_cast<double>(length) + 1e-6;
    if (most <= best_score_) break;
    const double score = expand(tree, places[length - 1], static_cast<int>(length),
                                static_cast<int>(std::min<double>(most, room)));
    if (score <= best_score_) continue;
    best_score_ = score;
    best_.swap(grown_);
  }
}

// Algorithm 1: the node N with the largest D(N) = D(parent) C(N) / sum of C over N's siblings is
// added until the tree has `most` nodes. Returns SCORE = sum of D over the tree.
double SuffixDecoding::expand(const SuffixTree& tree, SuffixTree::Place place, int length,
                              int most) {
  const auto less_probable = [](const Node& a, const Node& b) {
    return a.probability != b.probability ? a.probability < b.probability : a.order > b.order;
  };
  grown_.clear();
  queue_.clear();
  double score = 0;
  int order = 0;
  Node at{.length = length - 1, .child = {.place = place}};
  while (true) {
    if (at.length + 1 < tree.depth()) {
      const int sum = tree.children(at.child.place, children_);
      for (const SuffixTree::Child& child : children_) {
        const double share = static_cast<double>(child.count) / sum;
        if (at.probability * share < options_.min_token_prob) continue;
        queue_.push_back({static_cast<int>(grown_.size()), at.length + 1, sum - child.count, child,
                          at.probability * share, order++});
        std::push_heap(queue_.begin(), queue_.end(), less_probable);
      }
    }
    if (queue_.empty() || static_cast<int>(grown_.size()) >= most) return score;
    std::pop_heap(queue_.begin(), queue_.end(), less_probable);
    at = queue_.back();
    queue_.pop_back();
    score += at.probability;
    grown_.push_back(at);
  }
}

// Records alone: finished answers are inserted by the next propose().
void SuffixDecoding::observe(std::span<const Observation> observations) {
  for (const Observation& seen : observations) {
    State& state = state_of(seen.sequence);
    const auto size = static_cast<int>(seen.tokens.size());
    // The prompt's last pass emits one token; until then there are none but the prompt's.
    if (state.seen < 0) state.seen = size - (seen.tree != nullptr ? 1 : 0);
    const auto answer = seen.tokens.subspan(static_cast<size_t>(state.seen));
    state.answer.insert(state.answer.end(), answer.begin(), answer.end());
    state.seen = size;
  }
}

void SuffixDecoding::forget(SeqId sequence, Reason reason) {
  if (static_cast<size_t>(sequence) >= states_.size()) return;
  State& state = states_[static_cast<size_t>(sequence)];
  if (reason == Reason::finished && options_.global_tokens > 0) {
    finished_.push_back(std::move(state.answer));
  }
  state = State(options_.max_depth);
}

// Two generations bound the memory: when the younger is full, the older is dropped.
void SuffixDecoding::absorb_finished() {
  for (const std::vector<int32_t>& answer : finished_) {
    if (global_[1].tokens() >= options_.global_tokens / 2) {
      global_[0] = std::exchange(global_[1], SuffixTree(options_.max_depth));
    }
    for (int32_t token : answer) global_[1].append(token);
    global_[1].end_text();
    ++global_version_;
  }
  finished_.clear();
}

}  // namespace coppice
