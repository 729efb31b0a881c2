// See eagle.h.
#include "drafters/eagle.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr int kChunk = 256;  // rows caught up with at once
constexpr int kLag = 8;      // rows a sequence may bring into a tree's first run
constexpr int kMostLevels = 64;

}  // namespace

Eagle::Eagle(std::string_view kind, const EagleOptions& options, const MethodParts& parts)
    : growth_(options.tree, kind) {
  const DraftHead head(kind, options.head, *parts.target);
  taps_ = head.config().taps;
  vocabulary_ =
      std::make_unique<DraftVocabulary>(head.draft_ids(), parts.target->config().vocabulary);
  const int wide = parts.sequences * growth_.widest();
  layer_ = std::make_unique<FeatureLayer>(
      head, *parts.target, *parts.backend,
      FeatureLayer::Size{.rows = std::max({kChunk, parts.sequences * kLag, wide}),
                         .logit_rows = std::max(wide, parts.sequences),
                         .context = parts.context + kMostLevels});
}

Needs Eagle::needs() const {
  return {
      .tap_layers = taps_, .kv_layers = {layer_->kv_shape()}, .most_nodes = growth_.most_nodes()};
}

Eagle::Sequence& Eagle::at(SeqId sequence) {
  const auto index = static_cast<size_t>(sequence);
  if (index >= sequences_.size()) sequences_.resize(index + 1);
  return sequences_[index];
}

int Eagle::waiting(const Sequence& sequence) const {
  return static_cast<int>(sequence.features.size()) / (layer_->taps() * layer_->dim());
}

// A state that was computed anew makes those behind it stale.
void Eagle::observe(std::span<const Observation> observations) {
  const auto width = static_cast<size_t>(layer_->taps()) * static_cast<size_t>(layer_->dim());
  for (const Observation& seen : observations) {
    Sequence& sequence = at(seen.sequence);
    const int known = sequence.rows + waiting(sequence);
    if (seen.first_position > known) sequence.lost = true;
    if (sequence.lost || seen.kept_rows.empty()) continue;
    const int kept = std::max(0, seen.first_position - sequence.rows);
    sequence.rows = std::min(sequence.rows, seen.first_position);
    sequence.features.resize(static_cast<size_t>(kept) * width);
    for (const int row : seen.kept_rows) {
      for (int tap = 0; tap < layer_->taps(); ++tap) {
        const float* state = seen.tap(tap, row);
        sequence.features.insert(sequence.features.end(), state, state + layer_->dim());
      }
    }
  }
}

void Eagle::propose(std::span<DraftJob> jobs) {
  for (const DraftJob& job : jobs) at(job.sequence);
  growth_.grow(jobs, *this);
}

// Every committed position has its row, the last of which reads node 0's token.
int Eagle::room(const DraftJob& job) const {
  const Sequence& sequence = sequences_[static_cast<size_t>(job.sequence)];
  const int committed = static_cast<int>(job.tokens.size()) - 1;
  const int lags = waiting(sequence);
  if (sequence.lost || lags == 0 || sequence.rows + lags != committed) return 0;
  return kMostLevels;
}

int Eagle::begin(const DraftJob& job) {
  Sequence& sequence = at(job.sequence);
  sequence.job = &job;
  while (waiting(sequence) > kLag) catch_up(sequence, std::min(kChunk, waiting(sequence) - 1));
  sequence.base = sequence.rows;
  sequence.tree.begin(job.tokens.subspan(static_cast<size_t>(sequence.rows) + 1));
  sequence.hidden.clear();
  return sequence.tree.root();
}

void Eagle::catch_up(Sequence& sequence, int rows) {
  const DraftJob& job = *sequence.job;
  const auto count = static_cast<size_t>(rows);
  packed_.clear();
  packed_.add(job.tokens.subspan(static_cast<size_t>(sequence.rows) + 1, count), nullptr,
              sequence.rows, job.cache->pages(job.sequence), false);
  const ForwardBatch batch = packed_.batch();
  layer_->forward({.token = batch.token,
                   .parent = batch.parent,
                   .sequences = batch.sequences,
                   .logit_rows = {},
                   .features = sequence.features.data()},
                  *job.cache, job.first_layer);
  const size_t width = sequence.features.size() / static_cast<size_t>(waiting(sequence));
  sequence.features.erase(sequence.features.begin(),
                          sequence.features.begin() + static_cast<ptrdiff_t>(count * width));
  sequence.rows += rows;
}

// Tree rows stand in the step's own slots; there may be fewer than the shape would expand.
int Eagle::add(SeqId sequence, int parent_row, int32_t token) {
  Sequence& grown = at(sequence);
  if (grown.tree.size() - grown.tree.trunk() == grown.job->tail->rows()) return -1;
  return grown.tree.add(parent_row, token);
}

// The trunk's rows read true states; a node's row reads what this layer gave above it (Li 2024,
// section 3.1: "the predicted feature sequence and the token sequence advanced by one time step").
void Eagle::run(std::span<const SeqId> sequences) {
  const auto dim = static_cast<size_t>(layer_->dim());
  packed_.clear();
  inputs_.clear();
  const bool drafted = at(sequences.front()).tree.computed > 0;
  int logit_rows = 0;
  for (const SeqId id : sequences) {
    Sequence& sequence = at(id);
    DraftRows& tree = sequence.tree;
    COPPICE_CHECK((tree.computed > 0) == drafted);
    const auto first = static_cast<size_t>(tree.computed);
    if (!drafted) {
      inputs_.insert(inputs_.end(), sequence.features.begin(), sequence.features.end());
    }
    for (size_t row = first; drafted && row < tree.token.size(); ++row) {
      const auto above = sequence.hidden.begin() +
                         static_cast<ptrdiff_t>(static_cast<size_t>(tree.parent[row]) * dim);
      inputs_.insert(inputs_.end(), above, above + static_cast<ptrdiff_t>(dim));
    }
    sequence.last_run = std::max(tree.root(), tree.computed);
    sequence.first_logits = logit_rows;
    logit_rows += tree.size() - sequence.last_run;
    packed_.add_rows(std::span(tree.token).subspan(first), std::span(tree.parent).subspan(first),
                     std::span(tree.parent).first(first), sequence.base,
                     sequence.job->cache->pages(id), sequence.last_run - tree.computed);
  }
  const ForwardBatch batch = packed_.batch();
  const DraftJob& job = *at(sequences.front()).job;
  output_ = layer_->forward({.token = batch.token,
                             .parent = batch.parent,
                             .sequences = batch.sequences,
                             .logit_rows = batch.logit_rows,
                             .features = inputs_.data(),
                             .drafted = drafted},
                            *job.cache, job.first_layer);
  const float* hidden = output_.hidden.data();
  for (const SeqId id : sequences) {
    Sequence& sequence = at(id);
    const size_t values = static_cast<size_t>(sequence.tree.size() - sequence.tree.computed) * dim;
    sequence.hidden.insert(sequence.hidden.end(), hidden, hidden + values);
    hidden += values;
    sequence.tree.computed = sequence.tree.size();
    if (drafted) continue;
    sequence.rows += sequence.tree.trunk();
    sequence.features.clear();
  }
}

std::span<const float> Eagle::logits(SeqId sequence, int row) {
  const Sequence& grown = at(sequence);
  COPPICE_CHECK(row >= grown.last_run && row < grown.tree.computed);
  const auto width = static_cast<size_t>(vocabulary_->size());
  const auto index = static_cast<size_t>(grown.first_logits + row - grown.last_run);
  return vocabulary_->spread(output_.logits.subspan(index * width, width));
}

void Eagle::forget(SeqId sequence, Reason) {
  at(sequence) = {};
}

}  // namespace coppice
