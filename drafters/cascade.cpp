// See cascade.h.
#include "drafters/cascade.h"

#include <algorithm>

namespace coppice {
namespace {

/// Noise of one part: more than a tree has nodes.
constexpr uint32_t kLanes = 1u << 16;

int point_mass_child(const TokenTree& tree, int parent, int32_t token) {
  for (int c = tree.first_child(parent); c >= 0; c = tree.next_sibling(c)) {
    if (tree.token(c) == token && tree.q_row(c) == kPointMass && tree.role(c) == NodeRole::verify) {
      return c;
    }
  }
  return -1;
}

int copy_row(const QRows::Row& row, QRows& to) {
  return row.ids.empty() ? to.add_dense(row.p, row.without_replacement)
                         : to.add_sparse(row.ids, row.p, row.without_replacement);
}

}  // namespace

Cascade::Cascade(std::vector<std::unique_ptr<Drafter>> parts, Mode mode) : mode_(mode) {
  COPPICE_CHECK(!parts.empty() && parts.size() <= 256);
  for (auto& drafter : parts) {
    const Needs part = drafter->needs();
    parts_.push_back({std::move(drafter),
                      static_cast<int>(needs_.tap_layers.size()),
                      static_cast<int>(needs_.kv_layers.size()),
                      {}});
    needs_.tap_layers.insert(needs_.tap_layers.end(), part.tap_layers.begin(),
                             part.tap_layers.end());
    needs_.kv_layers.insert(needs_.kv_layers.end(), part.kv_layers.begin(), part.kv_layers.end());
    needs_.top_k = std::max(needs_.top_k, part.top_k);
    needs_.most_nodes = mode == Mode::merge ? needs_.most_nodes + part.most_nodes
                                            : std::max(needs_.most_nodes, part.most_nodes);
    if (part.vocabulary == 0) continue;
    if (needs_.vocabulary != 0 && needs_.vocabulary != part.vocabulary) {
      throw Error(
          "cascade: one part was made for {} tokens, another for {}; use parts for one target",
          needs_.vocabulary, part.vocabulary);
    }
    needs_.vocabulary = part.vocabulary;
  }
}

Cascade::Growth& Cascade::growth(SeqId sequence, size_t part) {
  if (static_cast<size_t>(sequence) >= growth_.size()) {
    growth_.resize(static_cast<size_t>(sequence) + 1);
  }
  std::vector<Growth>& grown = growth_[static_cast<size_t>(sequence)];
  grown.resize(parts_.size());
  return grown[part];
}

void Cascade::propose(std::span<DraftJob> jobs) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    jobs_.clear();
    asked_.clear();
    for (DraftJob& job : jobs) {
      Growth& grown = growth(job.sequence, part);
      grown.node_of.assign(1, 0);
      const bool wanted = mode_ == Mode::merge ? job.tree->room() > 0 : job.tree->size() == 1;
      if (!wanted) continue;
      grown.tree.reset(job.tokens.back(), job.tree->room(), job.tree->most_depth());
      DraftJob own = job;
      own.budget = job.tree->room();
      own.first_layer += parts_[part].first_layer;
      if (job.price != nullptr) {
        parts_[part].price = *job.price;
        parts_[part].price.source = static_cast<int>(part);
        own.price = &parts_[part].price;
      }
      own.tree = &grown.tree;
      if (own.sampler != nullptr) {
        own.sampler->number_drafts_from(static_cast<uint32_t>(part) * kLanes);
      }
      jobs_.push_back(own);
      asked_.push_back(&job);
    }
    if (jobs_.empty()) continue;
    parts_[part].drafter->propose(jobs_);
    for (DraftJob* job : asked_) {
      join(growth(job->sequence, part), static_cast<uint8_t>(part), *job->tree);
      if (job->sampler != nullptr) job->sampler->number_drafts_from(0);
    }
  }
}

void Cascade::join(Growth& grown, uint8_t source, TokenTree& tree) {
  std::vector<int> row_of(static_cast<size_t>(grown.tree.q.size()), -1);
  for (int own = 1; own < grown.tree.size(); ++own) {
    TreeNode node{.parent = grown.node_of[static_cast<size_t>(grown.tree.parent(own))],
                  .token = grown.tree.token(own),
                  .role = grown.tree.role(own),
                  .score = grown.tree.score(own),
                  .source = source};
    const int own_row = grown.tree.q_row(own);
    int at = -1;
    if (own_row != kPointMass) {
      int& row = row_of[static_cast<size_t>(own_row)];
      if (row < 0) row = copy_row(grown.tree.q.row(own_row), tree.q);
      node.q_row = row;
    } else if (node.role == NodeRole::verify) {
      at = point_mass_child(tree, node.parent, node.token);
    }
    if (at < 0) at = tree.add(node);
    COPPICE_CHECK(at > 0);  // it had no more room than the joined tree
    grown.node_of.push_back(at);
  }
}

void Cascade::observe(std::span<const Observation> observations) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    seen_.clear();
    for (Observation seen : observations) {
      Growth& grown = growth(seen.sequence, part);
      if (seen.tree == nullptr) grown.node_of.assign(1, 0);
      for (int& node : grown.node_of) node = node < 0 ? -1 : seen.node_of(node);
      seen.first_tap += parts_[part].first_tap;
      seen.own_nodes = grown.node_of;
      seen_.push_back(seen);
    }
    parts_[part].drafter->observe(seen_);
    for (const Observation& seen : observations) growth(seen.sequence, part).node_of.assign(1, 0);
  }
}

void Cascade::forget(SeqId sequence, Reason reason) {
  for (Part& part : parts_) part.drafter->forget(sequence, reason);
}

}  // namespace coppice
