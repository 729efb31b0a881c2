// See draft_runner.h.
#include "decoding/draft_runner.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr int kChunk = 256;  // rows fed at once when a sequence lags far behind: a new prompt
constexpr int kLag = 8;      // rows a sequence may bring into the first run

}  // namespace

DraftRunner::DraftRunner(const Model& model, Backend& backend, int sequences, int context,
                         int most_nodes, int most_wide)
    : model_(&model),
      context_(std::min(context, model.context())),
      most_nodes_(most_nodes),
      cache_(backend, model.kv_shapes(), sequences * KVCache::pages_for(context_ + most_nodes)),
      workspace_(model, backend,
                 {.rows = std::max(kChunk, sequences * std::max(kLag, most_wide)),
                  .logit_rows = sequences * most_wide}) {}

DraftRunner::Grown& DraftRunner::begin(SeqId sequence, std::span<const int32_t> tokens) {
  COPPICE_CHECK(!tokens.empty() && static_cast<int>(tokens.size()) <= context_);
  if (static_cast<size_t>(sequence) >= grown_.size()) {
    grown_.resize(static_cast<size_t>(sequence) + 1);
  }
  Grown& grown = grown_[static_cast<size_t>(sequence)];
  if (grown.kv_ < 0) grown.kv_ = cache_.open();
  settle(grown, tokens);
  while (static_cast<int>(tokens.size() - grown.fed_.size()) > kLag) {
    const auto rest = tokens.subspan(grown.fed_.size());
    feed(grown, rest.first(std::min<size_t>(kChunk, rest.size() - 1)));
  }
  const auto trunk = tokens.subspan(grown.fed_.size());
  grown.rows_.begin(trunk);
  // There are pages for every sequence's whole context and a tree behind it.
  auto tail = cache_.reserve(grown.kv_, static_cast<int>(trunk.size()) + most_nodes_);
  COPPICE_CHECK(tail.has_value());
  grown.tail_.emplace(std::move(*tail));
  return grown;
}

// Keeps what the last tree and `tokens` have in common. The last token is always fed anew: its
// logits give the first draft.
void DraftRunner::settle(Grown& grown, std::span<const int32_t> tokens) {
  const auto certain = tokens.first(tokens.size() - 1);
  const auto same =
      std::mismatch(grown.fed_.begin(), grown.fed_.end(), certain.begin(), certain.end());
  const bool prefix = same.first == grown.fed_.end();
  if (grown.tail_) {
    std::vector<int> kept;
    for (int row = 0, above = -1; prefix && row < grown.rows_.computed; ++row) {
      if (grown.fed_.size() == certain.size()) break;
      const size_t at = static_cast<size_t>(row);
      const int32_t token = grown.rows_.token[at];
      if (grown.rows_.parent[at] != above || token != certain[grown.fed_.size()]) continue;
      grown.fed_.push_back(token);
      kept.push_back(row);
      above = row;
    }
    cache_.commit(std::move(*grown.tail_), kept);
    grown.tail_.reset();
  }
  if (prefix) return;
  grown.fed_.erase(same.first, grown.fed_.end());
  cache_.truncate(grown.kv_, static_cast<int>(grown.fed_.size()));
}

void DraftRunner::feed(Grown& grown, std::span<const int32_t> tokens) {
  auto tail = cache_.reserve(grown.kv_, static_cast<int>(tokens.size()));
  COPPICE_CHECK(tail.has_value());
  packed_.clear();
  packed_.add(tokens, nullptr, cache_.committed(grown.kv_), cache_.pages(grown.kv_), false);
  model_->forward(packed_.batch(), cache_, workspace_);
  grown.fed_.insert(grown.fed_.end(), tokens.begin(), tokens.end());
  cache_.commit_all(std::move(*tail));
}

int DraftRunner::add(Grown& grown, int parent_row, int32_t token) {
  const int row = grown.rows_.add(parent_row, token);
  COPPICE_CHECK(row < grown.tail_->rows());
  return row;
}

void DraftRunner::run(std::span<Grown* const> all) {
  packed_.clear();
  int logit_rows = 0;
  for (Grown* grown : all) {
    DraftRows& rows = grown->rows_;
    const auto run = static_cast<size_t>(rows.computed);
    grown->first_wanted_ = std::max(rows.root(), rows.computed);
    grown->first_logits_ = logit_rows;
    logit_rows += rows.size() - grown->first_wanted_;
    packed_.add_rows(std::span(rows.token).subspan(run), std::span(rows.parent).subspan(run),
                     std::span(rows.parent).first(run), cache_.committed(grown->kv_),
                     cache_.pages(grown->kv_), grown->first_wanted_ - rows.computed);
    rows.computed = rows.size();
  }
  output_ = model_->forward(packed_.batch(), cache_, workspace_);
}

std::span<const float> DraftRunner::logits(const Grown& grown, int row) const {
  COPPICE_CHECK(row >= grown.first_wanted_ && row < grown.rows_.computed);
  return {output_.logits_of(grown.first_logits_ + row - grown.first_wanted_),
          static_cast<size_t>(output_.vocabulary)};
}

void DraftRunner::forget(SeqId sequence) {
  if (static_cast<size_t>(sequence) >= grown_.size()) return;
  Grown& grown = grown_[static_cast<size_t>(sequence)];
  grown.tail_.reset();
  grown.fed_.clear();
  if (grown.kv_ >= 0) cache_.close(grown.kv_);
  grown.kv_ = -1;
}

}  // namespace coppice
