// See sam.h.
#include "drafters/sam.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/tokenizer.h"

namespace coppice {

// Algorithm 1, expanding the automaton by one token (Blumer 1985).
void SuffixAutomaton::append(int32_t token) {
  const auto end = static_cast<int32_t>(text_.size());
  text_.push_back(token);
  const auto added = static_cast<int32_t>(states_.size());
  states_.push_back({.link = 0, .length = end + 1, .first_end = end});
  int32_t p = std::exchange(last_, added);
  for (; p >= 0 && target(p, token) == nullptr; p = states_[index(p)].link) {
    add_edge(p, token, added);
  }
  if (p < 0) return;
  const int32_t q = *target(p, token);
  if (states_[index(q)].length == states_[index(p)].length + 1) {
    states_[index(added)].link = q;
    return;
  }
  // q's strings up to that length occur once more than its longer ones: they get a state.
  const auto clone = static_cast<int32_t>(states_.size());
  State copy = states_[index(q)];
  copy.length = states_[index(p)].length + 1;
  const int32_t first_edge = std::exchange(copy.first_edge, -1);
  copy.edges = 0;
  states_.push_back(copy);
  for (int32_t e = first_edge; e >= 0; e = edges_[index(e)].next) {
    add_edge(clone, edges_[index(e)].token, edges_[index(e)].target);
  }
  for (; p >= 0; p = states_[index(p)].link) {
    int32_t* to = target(p, token);
    if (to == nullptr || *to != q) break;
    *to = clone;
  }
  states_[index(q)].link = states_[index(added)].link = clone;
}

void SuffixAutomaton::add_edge(int32_t from, int32_t token, int32_t target) {
  edge_[step_key(from, token)] = static_cast<int32_t>(edges_.size());
  State& state = states_[index(from)];
  edges_.push_back({token, target, state.first_edge});
  state.first_edge = static_cast<int32_t>(edges_.size()) - 1;
  ++state.edges;
}

int32_t* SuffixAutomaton::target(int32_t from, int32_t token) {
  const int32_t* edge = edge_.find(step_key(from, token));
  return edge == nullptr ? nullptr : &edges_[index(*edge)].target;
}

// Algorithm 2, state matching. The automaton may have grown since the match was made, and cut its
// state's strings in two: the match belongs to the shorter ones if it is no longer than they are.
SuffixAutomaton::Match SuffixAutomaton::advance(Match match, int32_t token) const {
  while (match.state > 0 &&
         match.length <= states_[index(states_[index(match.state)].link)].length) {
    match.state = states_[index(match.state)].link;
  }
  while (true) {
    if (const int32_t* edge = edge_.find(step_key(match.state, token))) {
      return {edges_[index(*edge)].target, match.length + 1};
    }
    if (match.state == 0) return {};
    match.state = states_[index(match.state)].link;
    match.length = states_[index(match.state)].length;
  }
}

namespace {

constexpr uintmax_t kMostCorpusBytes = 16u << 20;
constexpr RecurrencePrior kPrior = {
    .bias = -0.9f, .context = 0.75f, .agree = 0.0f, .disagree = -0.9f, .hits = 1.0f};

std::string read_corpus(const std::string& path) {
  std::error_code unknown;
  const uintmax_t bytes = std::filesystem::file_size(path, unknown);
  std::ifstream in(path, std::ios::binary);
  if (!in || unknown) throw Error("sam: corpus {}: cannot be read; name a text file", path);
  if (bytes > kMostCorpusBytes) {
    throw Error(
        "sam: corpus {}: {} bytes, the automaton takes {}; use a part of it, or the method "
        "'retrieval'",
        path, bytes, kMostCorpusBytes);
  }
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

SamDecoding::SamDecoding(const SamOptions& options, const MethodParts& parts) : options_(options) {
  if (options.corpus.empty()) return;
  const std::string text = read_corpus(options.corpus);
  for (int32_t token : parts.tokenizer->encode(text, SpecialText::literal)) static_.append(token);
}

void SamDecoding::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    if (static_cast<size_t>(job.sequence) >= states_.size()) {
      states_.resize(static_cast<size_t>(job.sequence) + 1);
    }
    State& state = states_[static_cast<size_t>(job.sequence)];
    state.hits.settle(job.tokens);
    // A token is matched before it is added, or the text's end would match itself.
    for (size_t i = state.dynamic.text().size(); i < job.tokens.size(); ++i) {
      state.match = state.dynamic.advance(state.match, job.tokens[i]);
      state.static_match = static_.advance(state.static_match, job.tokens[i]);
      state.dynamic.append(job.tokens[i]);
    }
    // Section 3.3: the text itself is the better guide unless the corpus knows much more of it.
    if (state.match.length >= state.static_match.length - options_.static_bias) {
      draft(state.dynamic, state.match, state, job);
    } else {
      draft(static_, state.static_match, state, job);
    }
  }
}

// Algorithm 3: what followed the first occurrence, alpha tokens for each one matched.
void SamDecoding::draft(const SuffixAutomaton& automaton, SuffixAutomaton::Match match,
                        State& state, DraftJob& job) const {
  if (match.length == 0) return;
  const std::vector<int32_t>& text = automaton.text();
  const auto first = static_cast<size_t>(automaton.first_end(match)) + 1;
  if (first >= text.size()) return;
  const int most = static_cast<int>(
      std::min<double>(options_.draft_length, options_.alpha * match.length + 1e-6));
  state.hits.expect(job.tokens.size(), text[first]);
  int node = 0;
  for (int i = 0; i < most && first + static_cast<size_t>(i) < text.size(); ++i) {
    const int32_t token = text[first + static_cast<size_t>(i)];
    const int others = std::max(0, automaton.followers(match) - 1);
    node = job.tree->add({.parent = node,
                          .token = token,
                          .score = kPrior(match.length, 1, others, state.hits.rate())});
    if (node < 0) return;
    match = automaton.advance(match, token);
  }
}

void SamDecoding::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < states_.size()) states_[static_cast<size_t>(sequence)] = {};
}

}  // namespace coppice
