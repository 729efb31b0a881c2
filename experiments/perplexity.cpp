// See perplexity.h.
#include "experiments/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/error.h"

namespace coppice {

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return std::log(sum) + most - static_cast<double>(logits[static_cast<size_t>(token)]);
}

TextScorer::TextScorer(const Model& model, Backend& backend, std::span<const int32_t> tokens,
                       const PerplexityOptions& options)
    : model_(model),
      tokens_(tokens),
      options_(options),
      cache_(backend, model.kv_shapes(),
             KVCache::pages_for(std::clamp(options.chunk, 2, model.context()))),
      workspace_(model, backend, {.rows = options.rows, .logit_rows = options.rows}) {
  if (options.chunk < 2 || options.chunk > model.context()) {
    throw Error("chunk is {}; it must be between 2 and the context of {} tokens", options.chunk,
                model.context());
  }
  if (tokens.size() < 2) {
    throw Error("the text has {} tokens; at least 2 are needed", tokens.size());
  }
  for (int i = 0; i < options.rows; ++i) {
    parents_.push_back(i - 1);
    logit_rows_.push_back(i);
  }
}

/// One pass over the next rows. False at the end of the text.
bool TextScorer::run_rows() {
  const auto length = static_cast<size_t>(options_.chunk);
  if (chunk_ + 1 >= tokens_.size()) return false;
  at_ += rows_;
  size_t chunk_size = std::min(length, tokens_.size() - chunk_);
  if (at_ + 1 >= chunk_size) {  // the chunk is done
    cache_.close(*sequence_);
    sequence_.reset();
    chunk_ += length;
    at_ = rows_ = row_ = 0;
    if (chunk_ + 1 >= tokens_.size()) return false;
    chunk_size = std::min(length, tokens_.size() - chunk_);
  }
  if (!sequence_) sequence_ = cache_.open();
  rows_ = std::min(static_cast<size_t>(options_.rows), chunk_size - 1 - at_);
  const int committed = cache_.committed(*sequence_);
  auto tail = cache_.reserve(*sequence_, static_cast<int>(rows_));
  COPPICE_CHECK(tail.has_value());
  const SequenceRows rows{0, static_cast<int>(rows_), committed, cache_.pages(*sequence_)};
  ForwardBatch batch;
  batch.token = tokens_.subspan(chunk_ + at_, rows_);
  batch.parent = std::span(parents_).first(rows_);
  batch.sequences = {&rows, 1};
  batch.logit_rows = std::span(logit_rows_).first(rows_);
  output_ = model_.forward(batch, cache_, workspace_);
  cache_.commit_all(std::move(*tail));
  row_ = 0;
  if (options_.on_progress) {
    options_.on_progress(static_cast<int>(chunk_ + at_ + rows_), static_cast<int>(tokens_.size()));
  }
  return true;
}

std::span<const float> TextScorer::next() {
  if (row_ == rows_ && !run_rows()) return {};
  const float* logits = output_.logits_of(static_cast<int>(row_++));
  return {logits, static_cast<size_t>(output_.vocabulary)};
}

Perplexity measure_perplexity(const Model& model, Backend& backend, std::span<const int32_t> tokens,
                              const PerplexityOptions& options) {
  TextScorer scorer(model, backend, tokens, options);
  Perplexity result;
  double sum = 0.0;
  for (auto logits = scorer.next(); !logits.empty(); logits = scorer.next()) {
    sum += negative_log_likelihood(logits, tokens[scorer.index()]);
    ++result.scored;
  }
  result.nll = sum / result.scored;
  result.perplexity = std::exp(result.nll);
  return result;
}

}  // namespace coppice
