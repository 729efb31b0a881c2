// See tree_growth.h.
#include "decoding/tree_growth.h"

#include <algorithm>
#include <chrono>

#include "decoding/draft_sampling.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr int kMostNodes = 256;

void check(const TreeOptions& options, std::string_view method) {
  if (options.acceptance.empty()) {
    throw Error("{}: acceptance is empty; give one number", method);
  }
  double nodes = 0.0, level = 1.0;
  for (const int children : options.branching) nodes += level *= children;
  if (options.branching.empty() || nodes > kMostNodes) {
    throw Error("{}: branching makes a tree of {:.0f} nodes; it must have 1..{}", method, nodes,
                kMostNodes);
  }
}

}  // namespace

void check_shape_options(const OptionMap& given, std::string_view shape,
                         std::span<const ShapeOption> options) {
  for (const OptionEntry& entry : given) {
    for (const ShapeOption& option : options) {
      if (entry.key != option.name || option.shapes.find(shape) != option.shapes.npos) continue;
      throw Error(
          "{}: '{}' has no effect with shape '{}', only with {}; leave it out, or set shape",
          entry.place, entry.key, shape, option.shapes);
    }
  }
}

void check_shape_options(const OptionMap& given, const TreeOptions& options) {
  constexpr ShapeOption kOptions[] = {
      {"draft_length", "chain"},     {"branching", "fixed"}, {"nodes", "dynamic, sequoia"},
      {"depth", "dynamic, sequoia"}, {"top_k", "dynamic"},   {"acceptance", "sequoia"},
  };
  check_shape_options(given, options.shape, kOptions);
}

TreeGrowth::TreeGrowth(const TreeOptions& options, std::string_view method)
    : options_(options), is_dynamic_(options.shape == "dynamic") {
  check(options, method);
  widest_ = options.top_k;
  most_rows_ = options.nodes;
  if (options.shape == "sequoia") {
    sequoia_ = std::make_unique<SequoiaTrees>(options.acceptance, options.nodes, options.depth);
    widest_ = options.nodes;  // another size, another tree: none has more nodes at a depth
    most_nodes_ = options.nodes;
  } else if (is_dynamic_) {
    most_rows_ = options.top_k * options.depth;
    most_nodes_ = options.nodes;
  } else {
    shape_ = options.shape == "chain" ? TreeShape::chain(options.draft_length)
                                      : TreeShape::fixed(options.branching);
    widest_ = shape_.widest();
    most_rows_ = most_nodes_ = shape_.nodes();
  }
}

int TreeGrowth::most_levels() const {
  return is_dynamic_ || sequoia_ != nullptr ? options_.depth : shape_.depth.back();
}

double TreeGrowth::Growth::reach() const {
  double sum = 0.0;
  for (const Open& one : open) sum += one.reach;
  return sum;
}

// Decides on the tree before anything is drawn; false: none pays.
bool TreeGrowth::starts(const DraftJob& job, int room, Growth& growth) const {
  growth.most_depth = std::min(room, job.tree->most_depth());
  if (growth.most_depth <= 0 || job.budget == 0) return false;
  if (is_dynamic_) {
    growth.most_depth = std::min(growth.most_depth, options_.depth);
    growth.dynamic.reset();
    return pace_.pays(job, 1.0, 0);
  }
  if (sequoia_ == nullptr) {
    growth.shape = shape_.cut(job.budget, growth.most_depth);
    return pace_.pays(job, 1.0, 0);
  }
  SequoiaTrees::Size size{job.budget, growth.most_depth};
  if (job.price != nullptr && !job.price->trial) {
    const std::span<const double> seconds = job.price->pass_seconds;
    size.nodes = std::min(size.nodes, static_cast<int>(seconds.size()) - 1);
    size = sequoia_->best_size([&](int rows) { return seconds[static_cast<size_t>(rows) - 1]; },
                               pace_.seconds(), size);
  }
  growth.shape = sequoia_->shape(size.nodes, size.depth);
  return growth.shape.nodes() > 0;
}

bool TreeGrowth::goes_on(const Growth& growth) const {
  if (growth.open.empty()) return false;
  // Sequoia has weighed the whole tree.
  return sequoia_ != nullptr || growth.depth == 0 ||
         pace_.pays(*growth.job, growth.reach(), growth.depth);
}

void TreeGrowth::grow(std::span<DraftJob> jobs, DraftSource& source) {
  growths_.clear();
  for (DraftJob& job : jobs) {
    Growth growth;
    growth.job = &job;
    if (!starts(job, source.room(job), growth)) continue;
    growth.open = {{.row = source.begin(job)}};
    growths_.push_back(std::move(growth));
  }
  // Leviathan 2023, Alg. 1, l. 1-3: x_i ~ q_i(x), level by level, for all sequences at once.
  while (!growths_.empty()) {
    const auto start = std::chrono::steady_clock::now();
    running_.clear();
    for (const Growth& growth : growths_) running_.push_back(growth.job->sequence);
    source.run(running_);
    double follow = 0.0;
    for (Growth& growth : growths_) {
      try {
        follow += is_dynamic_ ? grow_dynamic(growth, source) : grow_shape(growth, source);
        ++growth.depth;
      } catch (const Failure&) {  // a request forbids every token that could be drafted: no draft
        growth.open.clear();
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double sequences = static_cast<double>(growths_.size());
    pace_.learn(taken.count() / sequences, follow / sequences);
    std::erase_if(growths_, [&](const Growth& growth) {
      const bool ends = !goes_on(growth);
      if (ends && is_dynamic_) growth.dynamic.rerank(*growth.job->tree);
      return ends;
    });
  }
}

// The shape says how many children each node gets, whatever was drawn (SpecInfer's and Sequoia's
// trees, and the chain). Returns the part of what was reached that the new level keeps.
double TreeGrowth::grow_shape(Growth& growth, DraftSource& source) {
  const TreeShape& shape = growth.shape;
  const TokenTree& tree = *growth.job->tree;
  std::vector<Open> next;
  double kept = 0.0;
  for (const Open& open : growth.open) {
    add_children(*growth.job, open.tree_node, source.logits(growth.job->sequence, open.row),
                 {shape.children(open.node), !options_.replacement}, nodes_);
    int child = shape.first_child(open.node);
    for (const int node : nodes_) {
      const double reach = open.reach * acceptance_of(*growth.job, tree.score(node));
      kept += reach;
      if (shape.children(child) > 0) {
        const int row = source.add(growth.job->sequence, open.row, tree.token(node));
        if (row >= 0) next.push_back({child, row, node, reach});
      }
      ++child;
    }
  }
  const double reached = growth.reach();
  growth.open = std::move(next);
  return reached > 0.0 ? kept / reached : 0.0;
}

// EAGLE-2, section 4.1: the best nodes of the deepest level are expanded by their best tokens;
// section 4.2: at the end all candidates are ranked anew.
double TreeGrowth::grow_dynamic(Growth& growth, DraftSource& source) {
  DynamicTree& tree = growth.dynamic;
  double kept = 0.0;
  const double reached = growth.reach();
  for (const Open& open : growth.open) {
    tree.path_tokens(open.node, path_);
    rank_children(*growth.job, path_, source.logits(growth.job->sequence, open.row), options_.top_k,
                  ranked_);
    tree.add_children(open.node, ranked_);
    for (const RankedToken& child : ranked_) {
      kept += open.reach * acceptance_of(*growth.job, child.score);
    }
  }
  std::vector<Open> next;
  if (growth.depth + 1 < growth.most_depth) {
    for (const int node : tree.best_at(growth.depth + 1, options_.top_k)) {
      const auto above = std::find_if(growth.open.begin(), growth.open.end(),
                                      [&](const Open& o) { return o.node == tree.parent(node); });
      const int row = source.add(growth.job->sequence, above->row, tree.token(node));
      if (row < 0) break;
      next.push_back({node, row, 0, above->reach * acceptance_of(*growth.job, tree.score(node))});
    }
  }
  growth.open = std::move(next);
  return reached > 0.0 ? kept / reached : 0.0;
}

}  // namespace coppice
