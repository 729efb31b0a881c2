// See layer_skip.h.
#include "drafters/layer_skip.h"

#include <algorithm>
#include <chrono>

#include "decoding/draft_sampling.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

// Draft & Verify, section 3.3: the acceptance aimed at, the memory of acceptance and threshold, and
// the threshold's step.
constexpr double kAimed = 0.9, kMatchMemory = 0.5, kThresholdMemory = 0.9, kStep = 0.01;

std::vector<int> layers_to_run(const LayerSkipOptions& options, int layers) {
  if (options.exit > 0 && !options.skip.empty()) {
    throw Error("layer_skip: skip and exit are both given; choose one");
  }
  if (options.exit >= layers) {
    throw Error("layer_skip: exit is {} and the model has {} layers; give less", options.exit,
                layers);
  }
  std::vector<int> run;
  const bool every_second = options.exit == 0 && options.skip.empty();
  for (int layer = 0; layer < layers; ++layer) {
    const bool skipped = options.exit > 0 ? layer >= options.exit
                         : every_second
                             ? layer % 2 == 1 && layer + 1 < layers
                             : std::count(options.skip.begin(), options.skip.end(), layer) > 0;
    if (!skipped) run.push_back(layer);
  }
  for (const int layer : options.skip) {
    if (layer >= layers) {
      throw Error("layer_skip: skip names layer {}; the model's are 0..{}", layer, layers - 1);
    }
  }
  if (run.empty()) throw Error("layer_skip: every layer is skipped; keep at least one");
  return run;
}

}  // namespace

LayerSkip::LayerSkip(const LayerSkipOptions& options, const MethodParts& parts)
    : options_(options),
      target_(parts.target),
      layers_(layers_to_run(options, parts.target->layers())),
      workspace_(*parts.target, *parts.backend,
                 {.rows = parts.sequences, .logit_rows = parts.sequences}) {
  for (int row = 0; row < options.draft_length; ++row) chain_parents_.push_back(row - 1);
}

LayerSkip::Confidence& LayerSkip::confidence_of(SeqId sequence) {
  if (static_cast<size_t>(sequence) >= confidence_.size()) {
    confidence_.resize(static_cast<size_t>(sequence) + 1, {options_.threshold});
  }
  return confidence_[static_cast<size_t>(sequence)];
}

// Alg. 1, l. 3-9: x_j from the model without layers z, until it is unsure. What it writes of K and
// V stands in the tail that the verification rewrites, every layer at every node.
void LayerSkip::propose(std::span<DraftJob> jobs) {
  chains_.clear();
  for (DraftJob& job : jobs) {
    if (job.budget > 0 && job.tree->most_depth() > 0 && pace_.pays(job, 1.0, 0))
      chains_.push_back({&job});
  }
  for (int drafted = 0; drafted < options_.draft_length && !chains_.empty(); ++drafted) {
    const auto start = std::chrono::steady_clock::now();
    const ForwardOutput output = forward();
    double follow = 0.0;
    for (size_t c = 0; c < chains_.size(); ++c) {
      Chain& chain = chains_[c];
      TokenTree& tree = *chain.job->tree;
      chain.node = add_drawn(
          *chain.job, chain.node,
          {output.logits_of(static_cast<int>(c)), static_cast<size_t>(output.vocabulary)});
      const double kept = acceptance_of(*chain.job, tree.score(chain.node));
      follow += kept;
      chain.reach *= kept;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double sequences = static_cast<double>(chains_.size());
    pace_.learn(taken.count() / sequences, follow / sequences);
    // The score of a drawn token is its distribution's largest probability, so that stopping says
    // nothing about the token itself.
    std::erase_if(chains_, [&](const Chain& chain) {
      const TokenTree& tree = *chain.job->tree;
      return tree.room() == 0 || tree.depth(chain.node) == tree.most_depth() ||
             tree.score(chain.node) < confidence_of(chain.job->sequence).threshold ||
             !pace_.pays(*chain.job, chain.reach, tree.depth(chain.node));
    });
  }
}

// One row a chain: its last token, at its own slot of the tail.
ForwardOutput LayerSkip::forward() {
  token_.clear();
  parent_.clear();
  wanted_.clear();
  rows_.clear();
  for (const Chain& chain : chains_) {
    const DraftJob& job = *chain.job;
    const int depth = job.tree->depth(chain.node);
    const int row = static_cast<int>(token_.size());
    wanted_.push_back(row);
    token_.push_back(job.tree->token(chain.node));
    parent_.push_back(depth - 1);
    rows_.push_back({row, 1, job.tail->first_slot(), job.cache->pages(job.sequence),
                     std::span(chain_parents_).first(static_cast<size_t>(depth))});
  }
  ForwardBatch batch;
  batch.token = token_;
  batch.parent = parent_;
  batch.sequences = rows_;
  batch.logit_rows = wanted_;
  batch.layers = layers_;
  return target_->forward(batch, *chains_.front().job->cache, workspace_);
}

// Section 3.3, eq. 5: the threshold rises while less is accepted than aimed at, and falls else.
void LayerSkip::observe(std::span<const Observation> observations) {
  if (!options_.adapt) return;
  for (const Observation& seen : observations) {
    if (seen.tree == nullptr || seen.tree->size() == 1) continue;
    Confidence& now = confidence_of(seen.sequence);
    const double matched =
        static_cast<double>(seen.path.size()) / static_cast<double>(seen.tree->size() - 1);
    now.matched = kMatchMemory * now.matched + (1.0 - kMatchMemory) * matched;
    const double wanted = now.threshold + (now.matched < kAimed ? kStep : -kStep);
    now.threshold = kThresholdMemory * now.threshold + (1.0 - kThresholdMemory) * wanted;
  }
}

void LayerSkip::forget(SeqId sequence, Reason) {
  confidence_of(sequence) = {options_.threshold};
}

}  // namespace coppice
