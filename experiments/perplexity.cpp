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

Perplexity measure_perplexity(const Model& model, Backend& backend, std::span<const int32_t> tokens,
                              const PerplexityOptions& options) {
  if (options.chunk < 2 || options.chunk > model.context()) {
    throw Error("chunk is {}; it must be between 2 and the context of {} tokens", options.chunk,
                model.context());
  }
  if (tokens.size() < 2)
    throw Error("the text has {} tokens; at least 2 are needed", tokens.size());

  KVCache cache(backend, model.kv_shapes(), KVCache::pages_for(options.chunk));
  Workspace workspace(model, backend, {.rows = options.rows, .logit_rows = options.rows});
  std::vector<int32_t> parents(static_cast<size_t>(options.rows));
  std::vector<int32_t> logit_rows(static_cast<size_t>(options.rows));
  for (int i = 0; i < options.rows; ++i) {
    parents[static_cast<size_t>(i)] = i - 1;
    logit_rows[static_cast<size_t>(i)] = i;
  }

  Perplexity result;
  double sum = 0.0;
  for (size_t first = 0; first + 1 < tokens.size(); first += static_cast<size_t>(options.chunk)) {
    const auto chunk =
        tokens.subspan(first, std::min(static_cast<size_t>(options.chunk), tokens.size() - first));
    const SeqId sequence = cache.open();
    for (size_t at = 0; at + 1 < chunk.size();) {
      const size_t count = std::min(static_cast<size_t>(options.rows), chunk.size() - 1 - at);
      const int committed = cache.committed(sequence);
      auto tail = cache.reserve(sequence, static_cast<int>(count));
      COPPICE_CHECK(tail.has_value());
      const SequenceRows rows{0, static_cast<int>(count), committed, cache.pages(sequence)};
      ForwardBatch batch;
      batch.token = chunk.subspan(at, count);
      batch.parent = std::span(parents).first(count);
      batch.sequences = {&rows, 1};
      batch.logit_rows = std::span(logit_rows).first(count);
      const ForwardOutput output = model.forward(batch, cache, workspace);
      for (size_t i = 0; i < count; ++i) {
        const std::span<const float> logits(output.logits_of(static_cast<int>(i)),
                                            static_cast<size_t>(output.vocabulary));
        sum += negative_log_likelihood(logits, chunk[at + i + 1]);
      }
      result.scored += static_cast<int>(count);
      cache.commit_all(std::move(*tail));
      at += count;
      if (options.on_progress) {
        options.on_progress(static_cast<int>(first + at), static_cast<int>(tokens.size()));
      }
    }
    cache.close(sequence);
  }
  result.nll = sum / result.scored;
  result.perplexity = std::exp(result.nll);
  return result;
}

}  // namespace coppice
