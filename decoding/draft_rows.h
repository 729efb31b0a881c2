// The rows of a tree while a drafter computes it: a trunk of certain tokens, node 0 the last of
// them, and what is added under them between runs.
//
//   rows.begin(trunk);
//   int row = rows.add(rows.root(), token);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace coppice {

struct DraftRows {
  std::vector<int32_t> token, parent;  // parent -1: it follows what was there before
  int computed = 0;                    // by the runs so far

  void begin(std::span<const int32_t> trunk) {
    token.assign(trunk.begin(), trunk.end());
    parent.clear();
    for (int row = 0; row < size(); ++row) parent.push_back(row - 1);
    trunk_ = size();
    computed = 0;
  }
  /// The row that is there when it has the same tokens.
  int add(int parent_row, int32_t added) {
    for (int row = parent_row + 1; row < size(); ++row) {
      const auto at = static_cast<size_t>(row);
      if (parent[at] == parent_row && token[at] == added) return row;
    }
    token.push_back(added);
    parent.push_back(parent_row);
    return size() - 1;
  }
  int size() const { return static_cast<int>(token.size()); }
  int root() const { return trunk_ - 1; }
  int trunk() const { return trunk_; }

 private:
  int trunk_ = 0;
};

}  // namespace coppice
