// Trees become rows: one row for nodes that stand for the same tokens, parents before children.
#include "decoding/packed_batch.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

TEST(PackedBatch, RepeatedSiblingsAndWhatHangsAlikeUnderThemShareARow) {
  TokenTree tree;
  tree.reset(5, 8);
  const std::vector<float> q = {0.25f, 0.25f, 0.25f, 0.25f};
  const int row = tree.q.add_dense(q);
  const int a = tree.add({.parent = 0, .token = 2, .q_row = row});
  const int again = tree.add({.parent = 0, .token = 2, .q_row = row});
  const int other = tree.add({.parent = 0, .token = 3});
  const int below = tree.add({.parent = a, .token = 1});
  const int below_again = tree.add({.parent = again, .token = 1});
  const int below_other = tree.add({.parent = other, .token = 1});

  PackedBatch packed;
  packed.clear();
  const std::vector<int32_t> pages = {0};
  packed.add(std::vector<int32_t>{9, 9, 5}, &tree, 4, pages, true);
  const auto node_row = packed.node_row(0);
  EXPECT_EQ(node_row[0], 2);
  EXPECT_EQ(node_row[a], node_row[again]);
  EXPECT_EQ(node_row[below], node_row[below_again]);
  EXPECT_NE(node_row[below], node_row[below_other]);
  EXPECT_EQ(packed.rows(0).count, 3 + 4);
  EXPECT_EQ(packed.rows(0).committed, 4);

  const ForwardBatch batch = packed.batch();
  for (int node = 1; node < tree.size(); ++node) {
    const auto at = static_cast<size_t>(node_row[node]);
    EXPECT_EQ(batch.token[at], tree.token(node));
    EXPECT_EQ(batch.parent[at], node_row[tree.parent(node)]);
  }
  // Logits at every node, not at the trunk before node 0.
  EXPECT_EQ(batch.logit_rows.size(), 5u);
  EXPECT_EQ(packed.logit_row(0)[0], -1);
  EXPECT_EQ(packed.logit_row(0)[2], 0);
}

TEST(PackedBatch, SequencesFollowEachOther) {
  PackedBatch packed;
  packed.clear();
  const std::vector<int32_t> pages = {0, 1};
  packed.add(std::vector<int32_t>{1, 2, 3}, nullptr, 0, pages, false);
  packed.add(std::vector<int32_t>{4}, nullptr, 7, pages, true);
  const ForwardBatch batch = packed.batch();
  EXPECT_EQ(std::vector<int32_t>(batch.parent.begin(), batch.parent.end()),
            (std::vector<int32_t>{-1, 0, 1, -1}));
  EXPECT_EQ(std::vector<int32_t>(batch.logit_rows.begin(), batch.logit_rows.end()),
            std::vector<int32_t>{3});
  EXPECT_EQ(packed.rows(1).first, 3);
  EXPECT_EQ(packed.logit_row(1)[0], 0);
}

TEST(PackedBatch, RowsThatFollowWrittenOnesKeepTheirTailParents) {
  PackedBatch packed;
  packed.clear();
  const std::vector<int32_t> pages = {0}, written = {-1, 0}, parent = {1, 1, 0}, token = {7, 8, 9};
  packed.add(std::vector<int32_t>{1, 2}, nullptr, 0, pages, false);
  packed.add_rows(token, parent, written, 5, pages, 1);
  const ForwardBatch batch = packed.batch();
  EXPECT_EQ(std::vector<int32_t>(batch.parent.begin(), batch.parent.end()),
            (std::vector<int32_t>{-1, 0, 1, 1, 0}));
  EXPECT_EQ(std::vector<int32_t>(batch.logit_rows.begin(), batch.logit_rows.end()),
            (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(packed.rows(1).written.size(), 2u);
  EXPECT_TRUE(packed.node_row(1).empty());
  EXPECT_EQ(packed.logit_row(1)[0], -1);
}

}  // namespace
}  // namespace coppice
