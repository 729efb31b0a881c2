// See medusa.h.
#include "drafters/medusa.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <queue>

#include "decoding/draft_sampling.h"
#include "kernels/base/error.h"

namespace coppice {

void check_shape_options(const OptionMap& given, const MedusaOptions& options) {
  constexpr ShapeOption kOptions[] = {
      {"nodes", "ranked"}, {"top_k", "ranked"}, {"branching", "static"}};
  check_shape_options(given, options.shape, kOptions);
}

Medusa::Medusa(const MedusaOptions& options, const MethodParts& parts)
    : options_(options), target_(parts.target), backend_(parts.backend) {
  const DraftHead head("medusa", options.head, *target_);
  const HeadConfig& config = head.config();
  const SafetensorsFile& file = head.file();
  const int dim = target_->config().dim;
  taps_ = config.taps;
  vocabulary_ = std::make_unique<DraftVocabulary>(head.draft_ids(), target_->config().vocabulary);
  for (int h = 0; h < config.count; ++h) {
    Head& made = heads_.emplace_back();
    const auto name = [&](int layer, const char* part) {
      return fmt::format("{}{}.{}.{}", head.prefix(), h, layer, part);
    };
    for (int b = 0; b < config.blocks; ++b) {
      made.blocks.push_back({backend_->pack(file.matrix(name(b, "linear.weight"), dim, dim)),
                             file.vector(name(b, "linear.bias"), dim)});
    }
    const std::string output = name(config.blocks, "weight");
    if (file.find(output) != nullptr) {
      made.output = backend_->pack(file.matrix(output, vocabulary_->size(), dim));
    }
  }
  if (file.find("lm_head.weight") != nullptr) {
    shared_output_ = backend_->pack(file.matrix("lm_head.weight", vocabulary_->size(), dim));
  } else if (config.draft_vocabulary != 0 && heads_.front().output == nullptr) {
    throw Error("{}: tensor 'lm_head.weight' is missing", file.name());
  }
  std::vector<int> branching = options.branching;
  branching.resize(std::min(branching.size(), heads_.size()));
  double nodes = 0.0, level = 1.0;
  for (const int children : branching) nodes += level *= children;
  if (branching.empty() || nodes > 256) {
    throw Error("medusa: branching makes a tree of {:.0f} nodes; it must have 1..256", nodes);
  }
  shape_ = TreeShape::fixed(branching);
  most_nodes_ = options.shape == "static" ? shape_.nodes() : options.nodes;

  const auto floats = [&](size_t width) {
    return backend_->allocate(static_cast<size_t>(parts.sequences) * width * sizeof(float));
  };
  input_ = floats(static_cast<size_t>(dim));
  state_ = floats(heads_.size() * static_cast<size_t>(dim));
  next_ = floats(heads_.size() * static_cast<size_t>(dim));
  logits_ = floats(heads_.size() * static_cast<size_t>(vocabulary_->size()));
  ranked_.resize(heads_.size());
}

Needs Medusa::needs() const {
  return {.tap_layers = taps_, .most_nodes = most_nodes_};
}

void Medusa::propose(std::span<DraftJob> jobs) {
  const int dim = target_->config().dim;
  running_.clear();
  int heads = 0;
  for (DraftJob& job : jobs) {
    const float* hidden = hidden_.find(job);
    const int depth = std::min(static_cast<int>(heads_.size()), job.tree->most_depth());
    if (hidden == nullptr || depth <= 0 || job.budget == 0 || !pace_.pays(job, 1.0, 0)) continue;
    std::memcpy(input_.as<float>() + running_.size() * static_cast<size_t>(dim), hidden,
                static_cast<size_t>(dim) * sizeof(float));
    heads = std::max(heads, depth);
    running_.push_back(&job);
  }
  if (running_.empty()) return;
  const auto start = std::chrono::steady_clock::now();
  const auto sequences = running_.size();
  run(static_cast<int>(sequences), heads);
  double follow = 0.0;
  for (size_t s = 0; s < sequences; ++s) {
    DraftJob& job = *running_[s];
    const int depth = std::min(heads, job.tree->most_depth());
    std::vector<int32_t> path;
    try {
      for (int h = 0; h < depth; ++h) {
        const size_t width = static_cast<size_t>(vocabulary_->size());
        const size_t row = static_cast<size_t>(h) * sequences + s;
        const int wanted =
            options_.shape == "ranked"
                ? options_.top_k
                : options_
                      .branching[std::min(static_cast<size_t>(h), options_.branching.size() - 1)];
        // Noise and penalties see the path of best guesses: a head knows of no other.
        rank_children(job, path, vocabulary_->spread({logits_.as<float>() + row * width, width}),
                      wanted, ranked_[static_cast<size_t>(h)]);
        path.push_back(ranked_[static_cast<size_t>(h)].front().token);
      }
    } catch (const Failure&) {  // the request forbids every token a head knows: a shorter tree
    }
    for (size_t h = path.size(); h < ranked_.size(); ++h) ranked_[h].clear();
    if (path.empty()) continue;
    follow += acceptance_of(job, ranked_.front().front().score);
    options_.shape == "ranked" ? grow_ranked(job) : grow_static(job);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  pace_.learn(taken.count() / static_cast<double>(sequences),
              follow / static_cast<double>(sequences));
}

// Section 2.1.1: p_k = softmax(W2_k (SiLU(W1_k h) + h)), where h is what the output layer reads.
void Medusa::run(int sequences, int heads) {
  const ModelConfig& config = target_->config();
  const int dim = config.dim;
  const float* norm = target_->output_norm().data();
  ops_.clear();
  const size_t blocks = heads_.front().blocks.size();
  float* const first = state_.as<float>();
  float* const second = next_.as<float>();
  for (int h = 0; h < heads; ++h) {
    const Head& head = heads_[static_cast<size_t>(h)];
    const size_t offset = static_cast<size_t>(h) * sequences * dim;
    float* state = (blocks % 2 == 1 ? first : second) + offset;  // the last block writes `first`
    float* other = (blocks % 2 == 1 ? second : first) + offset;
    for (size_t b = 0; b < blocks; ++b) {
      const Block& block = head.blocks[b];
      Linear product{.weight = block.weight.get(),
                     .x = input_.as<float>(),
                     .x_stride = dim,
                     .rows = sequences,
                     .bias = block.bias.data(),
                     .activation = Activation::silu,
                     .y = state,
                     .y_stride = dim};
      if (b == 0) {
        product.norm = norm;
        product.norm_eps = config.norm_eps;
        ops_.push_back(product);
        ops_.push_back(AddNorm{input_.as<float>(), norm, config.norm_eps, sequences, dim, state});
        continue;
      }
      ops_.push_back(Copy{state, dim, sequences, dim, other, dim});
      product.x = state;
      product.accumulate = true;
      product.y = other;
      ops_.push_back(product);
      std::swap(state, other);
    }
    if (head.output != nullptr) add_output(*head.output, h, sequences, sequences);
  }
  if (heads_.front().output == nullptr) {
    add_output(shared_output_ ? *shared_output_ : target_->output(), 0, heads * sequences,
               sequences);
  }
  backend_->run(ops_);
}

void Medusa::add_output(const Weight& weight, int head, int rows, int sequences) {
  const int dim = target_->config().dim;
  const size_t row = static_cast<size_t>(head) * sequences;
  const int width = vocabulary_->size();
  ops_.push_back(Linear{.weight = &weight,
                        .x = state_.as<float>() + row * dim,
                        .x_stride = dim,
                        .rows = rows,
                        .y = logits_.as<float>() + row * width,
                        .y_stride = width});
}

// Section 2.3.3: nodes in order of the product of their path's probabilities.
void Medusa::grow_ranked(DraftJob& job) {
  struct Candidate {
    double value;
    int parent;  // node of the tree
    size_t depth, rank;
    bool operator<(const Candidate& other) const { return value < other.value; }
  };
  std::priority_queue<Candidate> queue;
  const auto push = [&](double above, int parent, size_t depth, size_t rank) {
    if (depth >= ranked_.size() || rank >= ranked_[depth].size()) return;
    queue.push({above * ranked_[depth][rank].score, parent, depth, rank});
  };
  push(1.0, 0, 0, 0);
  for (int nodes = 0; nodes < options_.nodes && !queue.empty(); ++nodes) {
    const Candidate best = queue.top();
    queue.pop();
    const RankedToken& guess = ranked_[best.depth][best.rank];
    const int node =
        job.tree->add({.parent = best.parent, .token = guess.token, .score = guess.score});
    if (node < 0) return;
    push(best.value, node, best.depth + 1, 0);
    push(guess.score > 0.0f ? best.value / guess.score : 0.0, best.parent, best.depth,
         best.rank + 1);
  }
}

// Section 2.1.2: the Cartesian product of the heads' best guesses.
void Medusa::grow_static(DraftJob& job) {
  std::vector<int> node_of = {0};
  for (int at = 0; at <= shape_.nodes(); ++at) {
    const int under = node_of[static_cast<size_t>(at)];
    const int depth = shape_.depth[static_cast<size_t>(at)];
    for (int rank = 0; rank < shape_.children(at); ++rank) {
      const auto& guesses = ranked_[static_cast<size_t>(depth)];
      int node = -1;
      if (under >= 0 && rank < static_cast<int>(guesses.size())) {
        const RankedToken& guess = guesses[static_cast<size_t>(rank)];
        node = job.tree->add({.parent = under, .token = guess.token, .score = guess.score});
      }
      node_of.push_back(node);
    }
  }
}

}  // namespace coppice
