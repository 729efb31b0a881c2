// The token tree: shape, siblings in the order they were added, and malformed trees that cannot be
// built.
#include "core/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace coppice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> children(const TokenTree& tree, int node) {
  std::vector<int> found;
  for (int c = tree.first_child(node); c >= 0; c = tree.next_sibling(c)) found.push_back(c);
  return found;
}

TEST(TokenTree, ACutNumbersTheRestAnew) {
  TokenTree tree;
  tree.reset(17, 8);
  const int row = tree.q.add_dense(std::vector<float>(10, 0.1f));
  tree.add({.parent = 0, .token = 5, .score = 0.5f});  // goes, with what is below
  tree.add({.parent = 1, .token = 6});
  tree.add({.parent = 0, .token = 7, .q_row = row, .score = 0.25f, .source = 2});
  tree.add({.parent = 3, .token = 8, .role = NodeRole::probe});
  tree.add({.parent = 0, .token = 9});
  tree.cut(std::vector<uint8_t>{1, 0, 0, 1, 1, 1});
  EXPECT_EQ(tree.size(), 4);
  EXPECT_THAT(children(tree, 0), ElementsAre(1, 3));
  EXPECT_THAT(children(tree, 1), ElementsAre(2));
  EXPECT_THAT(children(tree, 2), IsEmpty());
  EXPECT_EQ(tree.token(1), 7);
  EXPECT_EQ(tree.q_row(1), row);
  EXPECT_EQ(tree.score(1), 0.25f);
  EXPECT_EQ(tree.source(1), 2);
  EXPECT_EQ(tree.depth(2), 2);
  EXPECT_EQ(tree.role(2), NodeRole::probe);
  EXPECT_EQ(tree.token(3), 9);
  EXPECT_EQ(tree.add({.parent = 2, .token = 4, .role = NodeRole::probe}), 4) << "grows on";
}

TEST(TokenTreeDeathTest, ACutKeepsNoNodeWithoutItsParent) {
  TokenTree tree;
  tree.reset(17, 8);
  tree.add({.parent = 0, .token = 5});
  tree.add({.parent = 1, .token = 6});
  EXPECT_DEATH(tree.cut(std::vector<uint8_t>{1, 0, 1}), "");
}

TEST(TokenTree, GrowsInOrder) {
  TokenTree tree;
  tree.reset(17, 8);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.room(), 8);
  EXPECT_EQ(tree.token(0), 17);
  EXPECT_EQ(tree.parent(0), -1);
  EXPECT_EQ(tree.depth(0), 0);
  EXPECT_EQ(tree.add({.parent = 0, .token = 5}), 1);
  EXPECT_EQ(tree.add({.parent = 1, .token = 6, .score = 0.25f}), 2);
  EXPECT_EQ(tree.add({.parent = 0, .token = 7}), 3);
  EXPECT_EQ(tree.add({.parent = 2, .token = 5, .role = NodeRole::probe}), 4);
  EXPECT_EQ(tree.add({.parent = 0, .token = 9}), 5);
  EXPECT_THAT(children(tree, 0), ElementsAre(1, 3, 5));
  EXPECT_THAT(children(tree, 1), ElementsAre(2));
  EXPECT_THAT(children(tree, 3), IsEmpty());
  EXPECT_EQ(tree.depth(4), 3);
  EXPECT_EQ(tree.score(2), 0.25f);
  EXPECT_EQ(tree.room(), 3);
  std::vector<int32_t> path = {99, 99, 99, 99, 99};
  tree.path_tokens(4, path);
  EXPECT_THAT(path, ElementsAre(5, 6, 5));
  tree.path_tokens(0, path);
  EXPECT_THAT(path, IsEmpty());
}

TEST(TokenTree, CapacityZeroTakesNothing) {
  TokenTree tree;
  tree.reset(1, 0);
  EXPECT_EQ(tree.add({.parent = 0, .token = 2}), -1);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.first_child(0), -1);
}

TEST(TokenTree, RefusesWhatIsOverCapacityOrTooDeep) {
  TokenTree tree;
  tree.reset(1, 2, 1);
  const int child = tree.add({.parent = 0, .token = 2});
  EXPECT_EQ(tree.add({.parent = child, .token = 3}), -1);
  EXPECT_EQ(tree.add({.parent = 0, .token = 3}), 2);
  EXPECT_EQ(tree.add({.parent = 0, .token = 4}), -1);
  EXPECT_THAT(children(tree, 0), ElementsAre(1, 2));
}

TEST(TokenTree, ResetForgetsEverything) {
  TokenTree tree;
  tree.reset(1, 4);
  const std::vector<float> q = {0.5f, 0.5f};
  tree.add({.parent = 0, .token = 1, .q_row = tree.q.add_dense(q)});
  tree.reset(3, 2);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.q.size(), 0);
  EXPECT_EQ(tree.first_child(0), -1);
  EXPECT_EQ(tree.add({.parent = 0, .token = 1}), 1);
  EXPECT_EQ(tree.q_row(1), kPointMass);
}

TEST(TokenTree, FindsTheFirstVerifyChild) {
  TokenTree tree;
  tree.reset(0, 8);
  const int row = tree.q.add_dense(std::vector<float>{0.5f, 0.5f});
  tree.add({.parent = 0, .token = 1, .role = NodeRole::probe});
  const int first = tree.add({.parent = 0, .token = 1, .q_row = row});
  tree.add({.parent = 0, .token = 1, .q_row = row});  // a repeat stays
  EXPECT_EQ(tree.find_child(0, 1), first);
  EXPECT_EQ(tree.find_child(0, 0), -1);
  EXPECT_EQ(tree.find_child(first, 1), -1);
}

TEST(TokenTree, KindsOfSiblingsMayHoldTheSameToken) {
  TokenTree tree;
  tree.reset(0, 8);
  const int with = tree.q.add_dense(std::vector<float>{0.5f, 0.5f});
  const int without = tree.q.add_dense(std::vector<float>{0.5f, 0.5f}, true);
  const int other = tree.q.add_dense(std::vector<float>{0.5f, 0.5f}, true);
  for (const int row : {kPointMass, with, with, without, other}) {
    EXPECT_GT(tree.add({.parent = 0, .token = 1, .q_row = row}), 0);
  }
  EXPECT_GT(tree.add({.parent = 0, .token = 1, .role = NodeRole::probe}), 0);
}

TEST(TokenTreeDeath, MalformedNodesCannotBeBuilt) {
  TokenTree tree;
  tree.reset(0, 8);
  const int row = tree.q.add_dense(std::vector<float>{0.0f, 1.0f}, true);
  const int probe = tree.add({.parent = 0, .token = 3, .role = NodeRole::probe});
  tree.add({.parent = 0, .token = 4});
  tree.add({.parent = 0, .token = 1, .q_row = row});
  const auto refused = [&tree](const TreeNode& node) {
    EXPECT_DEATH(tree.add(node), "check failed");
  };
  refused({.parent = -1, .token = 1});
  refused({.parent = tree.size(), .token = 1});
  refused({.parent = 0, .token = -1});
  refused({.parent = probe, .token = 1});                // verify under a probe
  refused({.parent = 0, .token = 4});                    // a point mass twice
  refused({.parent = 0, .token = 1, .q_row = row});      // twice without replacement
  refused({.parent = 0, .token = 0, .q_row = row});      // cannot have been drawn
  refused({.parent = 0, .token = 2, .q_row = row});      // beyond the row
  refused({.parent = 0, .token = 1, .q_row = row + 1});  // no such row
  refused({.parent = 0, .token = 1, .q_row = -2});
  EXPECT_DEATH(tree.reset(0, -1), "check failed");
  EXPECT_DEATH(tree.reset(0, 1, -1), "check failed");
}

TEST(QRows, AlignByTokenId) {
  QRows q;
  EXPECT_EQ(q.add_dense(std::vector<float>{0.25f, 0.75f}), 0);
  EXPECT_EQ(q.add_sparse(std::vector<int32_t>{2, 5, 9}, std::vector<float>{0.5f, 0.2f, 0.3f}, true),
            1);
  EXPECT_EQ(q.add_dense(std::vector<float>{1.0f}), 2);
  EXPECT_EQ(q.row(0).probability(1), 0.75f);
  EXPECT_EQ(q.row(0).probability(2), 0.0f);
  EXPECT_EQ(q.row(0).probability(-1), 0.0f);
  EXPECT_EQ(q.row(1).probability(5), 0.2f);
  EXPECT_EQ(q.row(1).probability(9), 0.3f);
  EXPECT_EQ(q.row(1).probability(3), 0.0f);
  EXPECT_EQ(q.row(1).probability(10), 0.0f);
  EXPECT_EQ(q.row(2).p.size(), 1u);
  EXPECT_FALSE(q.row(0).without_replacement);
  EXPECT_TRUE(q.row(1).without_replacement);
  q.clear();
  EXPECT_EQ(q.size(), 0);
}

TEST(QRowsDeath, MalformedRowsCannotBeBuilt) {
  QRows q;
  const std::vector<float> two = {0.5f, 0.5f};
  EXPECT_DEATH(q.add_dense({}), "check failed");
  EXPECT_DEATH(q.add_sparse({}, {}), "check failed");
  EXPECT_DEATH(q.add_sparse(std::vector<int32_t>{1}, two), "check failed");
  EXPECT_DEATH(q.add_sparse(std::vector<int32_t>{5, 2}, two), "check failed");
  EXPECT_DEATH(q.add_sparse(std::vector<int32_t>{2, 2}, two), "check failed");
  EXPECT_DEATH(q.add_sparse(std::vector<int32_t>{-1, 2}, two), "check failed");
  EXPECT_DEATH(q.row(0), "check failed");
}

RC_GTEST_PROP(TokenTree, LinksAgreeWithParents, ()) {
  TokenTree tree;
  const int capacity = *rc::gen::inRange(0, 40);
  tree.reset(0, capacity);
  std::vector<int> parents = {-1};
  for (int i = 1; i <= capacity; ++i) {
    parents.push_back(*rc::gen::inRange(0, i));
    RC_ASSERT(tree.add({.parent = parents.back(), .token = i}) == i);
  }
  RC_ASSERT(tree.room() == 0);
  for (int node = 0; node < tree.size(); ++node) {
    std::vector<int> expected;
    for (int i = 1; i < tree.size(); ++i) {
      if (parents[static_cast<size_t>(i)] == node) expected.push_back(i);
    }
    RC_ASSERT(children(tree, node) == expected);
    std::vector<int32_t> path, walked;
    tree.path_tokens(node, path);
    for (int at = node; at > 0; at = tree.parent(at)) walked.insert(walked.begin(), at);
    RC_ASSERT(path == walked);
    RC_ASSERT(tree.depth(node) == static_cast<int>(path.size()));
    for (const int child : expected) RC_ASSERT(tree.find_child(node, tree.token(child)) == child);
  }
}

}  // namespace
}  // namespace coppice
