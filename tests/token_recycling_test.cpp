// Token recycling against a plain loop over a map, with a made-up target whose top 8 tokens are
// known at every node; and the authors' tree, path by path. Source: Luo 2024, section 3.
#include "drafters/token_recycling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "kernels/backend.h"
#include "tests/tiny_model.h"

namespace coppice {
namespace {

using Tokens = std::vector<int32_t>;

// The tree "2.2.2" as the authors list it: the ranks on the way down to each node.
constexpr const char* kPaths =
    "0 1 2 3 4 5 6 7 00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70 000 001 002 "
    "003 "
    "004 005 006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500 0000 0001 "
    "0002 0003 0004 0010 0011 0020 0030 0040 0100 0200 1000 2000 3000 00000 00001 00002 00010 "
    "00020 "
    "00100 01000 10000 000000 000001 000100";

/// The most likely tokens behind a context: a function of its last two tokens.
Tokens top_eight(int32_t before, int32_t last) {
  Tokens ids(61);
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 random(static_cast<uint32_t>(last * 64 + before % 3));
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(8);
  return ids;
}

/// The target of a step: top 8 of every node of a tree, by node.
std::vector<Tokens> verify(const TokenTree& tree, int32_t before) {
  std::vector<Tokens> top;
  for (int node = 0; node < tree.size(); ++node) {
    top.push_back(top_eight(node == 0 ? before : tree.token(tree.parent(node)), tree.token(node)));
  }
  return top;
}

std::vector<int> accepted(const TokenTree& tree, const std::vector<Tokens>& top) {
  std::vector<int> path;
  for (int node = 0;;) {
    node = tree.find_child(node, top[static_cast<size_t>(node)].front());
    if (node < 0) return path;
    path.push_back(node);
  }
}

class TokenRecyclingTest : public testing::Test {
 protected:
  TokenRecycling make(int max_nodes = 80) {
    return TokenRecycling({.max_nodes = max_nodes}, {.target = &model_});
  }
  static TokenTree propose(TokenRecycling& drafter, const Tokens& tokens, int room = 80) {
    TokenTree tree;
    tree.reset(tokens.back(), room);
    DraftJob job;
    job.tokens = tokens;
    job.tree = &tree;
    drafter.propose({&job, 1});
    return tree;
  }
  static void observe(TokenRecycling& drafter, const TokenTree& tree,
                      const std::vector<Tokens>& top) {
    ForwardOutput output;
    output.top_k = 8;
    Tokens ids;
    std::vector<float> logits;
    for (const Tokens& node : top) {
      ids.insert(ids.end(), node.begin(), node.end());
      for (size_t rank = 0; rank < node.size(); ++rank) logits.push_back(-1.0f * rank);
    }
    output.top_ids = ids;
    output.top_logits = logits;
    std::vector<int> rows(top.size());
    std::iota(rows.begin(), rows.end(), 0);
    Observation seen;
    seen.tree = &tree;
    seen.node_row = rows;
    seen.logit_row = rows;
    seen.output = &output;
    drafter.observe({&seen, 1});
  }

  test::TinyModel tiny_{{.vocabulary = 61, .layers = 1}};
  std::unique_ptr<Backend> backend_ = make_backend({.name = "reference", .threads = 1});
  Model model_{tiny_.source(), *backend_};
};

TEST_F(TokenRecyclingTest, FillsTheAuthorsTree) {
  TokenRecycling drafter = make();
  EXPECT_EQ(propose(drafter, {5}).size(), 1);  // the matrix starts empty
  TokenTree all;  // every token's row is known: token t is followed by t+1, t+2, ...
  all.reset(0, 60);
  for (int32_t token = 1; token < 61; ++token) all.add({.parent = 0, .token = token});
  std::vector<Tokens> top(61);
  for (int32_t token = 0; token < 61; ++token) {
    for (int32_t rank = 0; rank < 8; ++rank) {
      top[static_cast<size_t>(token)].push_back((token + 1 + rank) % 61);
    }
  }
  observe(drafter, all, top);
  const TokenTree tree = propose(drafter, {5});
  ASSERT_EQ(tree.size(), 81);
  std::istringstream paths(kPaths);
  std::string path;
  for (int node = 1; paths >> path; ++node) {
    Tokens expected, found;
    for (char rank : path) {
      expected.push_back(((expected.empty() ? 5 : expected.back()) + 1 + (rank - '0')) % 61);
    }
    tree.path_tokens(node, found);
    EXPECT_EQ(found, expected) << path;
    EXPECT_GT(tree.score(node), 0.0f);
    EXPECT_LT(tree.score(node), 1.0f);
  }
  EXPECT_GT(tree.score(1), tree.score(2));
}

TEST_F(TokenRecyclingTest, AShortBudgetKeepsTheLikeliestNodes) {
  TokenRecycling drafter = make();
  TokenTree all;
  all.reset(0, 60);
  for (int32_t token = 1; token < 61; ++token) all.add({.parent = 0, .token = token});
  observe(drafter, all, verify(all, 0));
  const TokenTree small = propose(drafter, {5}, 6);
  ASSERT_EQ(small.size(), 7);
  EXPECT_GE(small.depth(6), 3);  // not the eight children of node 0
  TokenRecycling narrow = make(6);
  EXPECT_EQ(narrow.needs().most_nodes, 6);
}

TEST_F(TokenRecyclingTest, TheLaterNodeOfATokenWins) {
  TokenRecycling drafter = make();
  TokenTree tree;
  tree.reset(1, 3);
  const int a = tree.add({.parent = 0, .token = 9});
  tree.add({.parent = a, .token = 9});
  observe(drafter, tree,
          {{2, 3, 4, 5, 6, 7, 8, 10}, {11, 3, 4, 5, 6, 7, 8, 10}, {12, 3, 4, 5, 6, 7, 8, 10}});
  EXPECT_EQ(propose(drafter, {9}).token(1), 12);
}

// The definition, by a map: the same tokens a step over the same top 8 at every node.
TEST_F(TokenRecyclingTest, EmitsAsManyTokensAStepAsAPlainLoop) {
  TokenRecycling drafter = make();
  std::map<int32_t, Tokens> matrix;
  Tokens ours = {3, 7}, plain = {3, 7};
  double emitted = 0;
  for (int step = 0; step < 200; ++step) {
    const TokenTree tree = propose(drafter, ours);
    const std::vector<Tokens> top = verify(tree, ours[ours.size() - 2]);
    const std::vector<int> path = accepted(tree, top);
    observe(drafter, tree, top);
    for (int node : path) ours.push_back(tree.token(node));
    ours.push_back(top[path.empty() ? 0 : static_cast<size_t>(path.back())].front());
    emitted += static_cast<double>(path.size()) + 1;

    TokenTree naive;
    naive.reset(plain.back(), 80);
    std::map<std::string, int> index = {{"", 0}};
    std::istringstream paths(kPaths);
    for (std::string name; paths >> name;) {
      const auto parent = index.find(name.substr(0, name.size() - 1));
      if (parent == index.end()) continue;
      const auto row = matrix.find(naive.token(parent->second));
      if (row == matrix.end()) continue;
      index[name] = naive.add(
          {.parent = parent->second, .token = row->second[static_cast<size_t>(name.back() - '0')]});
    }
    const std::vector<Tokens> naive_top = verify(naive, plain[plain.size() - 2]);
    const std::vector<int> naive_path = accepted(naive, naive_top);
    for (int node = 0; node < naive.size(); ++node) {
      matrix[naive.token(node)] = naive_top[static_cast<size_t>(node)];
    }
    for (int node : naive_path) plain.push_back(naive.token(node));
    plain.push_back(
        naive_top[naive_path.empty() ? 0 : static_cast<size_t>(naive_path.back())].front());
    ASSERT_EQ(ours, plain) << "step " << step;
  }
  EXPECT_GT(emitted / 200, 1.3);
}

}  // namespace
}  // namespace coppice
