// The loop that byte-level BPE and merges by score share: join the best pair of neighbours until no
// pair can be joined. A linked list and a heap make it O(n log n), so that a megabyte without a
// space costs what a megabyte of prose does.
//
//   symbols: l o w e r, table: "l o" best, "lo w" next  ->  low e r
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace coppice {

struct Symbol {
  std::string_view text;  // a part of the text being cut
  int32_t id;             // -1: no token
};

struct Merge {
  float order;  // smaller goes first; finite
  int32_t id;   // of the joined symbol
};

/// Kept between calls to reuse its memory.
class SymbolMerger {
 public:
  /// Symbols whose texts stand one behind the other.
  std::vector<Symbol> symbols;

  /// Joins pairs of `symbols`, smallest order first, leftmost among equals, until none is left to
  /// join. `find(left, right)` gives a std::optional<Merge>, empty when the two stay apart; it must
  /// depend on the texts and ids of the two alone.
  template <class Find>
  void run(const Find& find) {
    const auto count = static_cast<int32_t>(symbols.size());
    links_.resize(symbols.size());
    heap_.clear();
    for (int32_t i = 0; i < count; ++i) {
      links_[i] = {i - 1, i + 1 < count ? i + 1 : -1};
      if (i > 0) consider(i - 1, i, find);
    }
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Candidate best = heap_.back();
      heap_.pop_back();
      const int32_t right = links_[best.left].next;
      if (right < 0 || !still_stands(best, right)) continue;
      join(best, right, find);
    }
    // A joined symbol lives on at its left part's place; the other is left with an empty text.
    std::erase_if(symbols, [](const Symbol& symbol) { return symbol.text.empty(); });
  }

 private:
  struct Link {
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    float order;
    int32_t left;  // index of the left symbol
    int32_t id;
    uint32_t size;  // of the joined text: tells whether either symbol has changed since
    bool operator<(const Candidate& other) const {
      return order != other.order ? order > other.order : left > other.left;
    }
  };

  template <class Find>
  void consider(int32_t left, int32_t right, const Find& find) {
    if (const std::optional<Merge> merge = find(symbols[left], symbols[right])) {
      const size_t size = symbols[left].text.size() + symbols[right].text.size();
      heap_.push_back({merge->order, left, merge->id, static_cast<uint32_t>(size)});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  bool still_stands(const Candidate& candidate, int32_t right) const {
    const std::string_view left_text = symbols[candidate.left].text;
    return !left_text.empty() && left_text.size() + symbols[right].text.size() == candidate.size;
  }

  template <class Find>
  void join(const Candidate& best, int32_t right, const Find& find) {
    Symbol& left = symbols[best.left];
    left = {{left.text.data(), best.size}, best.id};
    symbols[right].text = {};
    const int32_t next = links_[right].next;
    links_[best.left].next = next;
    if (next >= 0) {
      links_[next].previous = best.left;
      consider(best.left, next, find);
    }
    const int32_t previous = links_[best.left].previous;
    if (previous >= 0) consider(previous, best.left, find);
  }

  std::vector<Link> links_;
  std::vector<Candidate> heap_;
};

}  // namespace coppice
