// Perplexity of a model on a text: the text's first tokens cut into chunks, each on its own, no
// bos; the mean negative log-likelihood of tokens 2.. of each chunk. Special tokens in the text are
// parsed: WikiText is full of <unk>, one token to a model that has it.
//
//   Perplexity p = measure_perplexity(model, backend, tokenizer.encode(text, SpecialText::parsed),
//                                     {.chunk = 1024});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/model.h"

namespace coppice {

struct PerplexityOptions {
  int chunk = 1024;  // tokens, at least 2; a last chunk of fewer than 2 is left out
  int rows = 64;     // computed at once
  std::function<void(int done, int total)> on_progress;  // tokens; may be empty
};

/// Runs a model over a text, chunk by chunk, and hands out the logits before each token it scores.
class TextScorer {
 public:
  /// All arguments outlive the object. Throws Error as measure_perplexity() does.
  TextScorer(const Model& model, Backend& backend, std::span<const int32_t> tokens,
             const PerplexityOptions& options);
  /// Logits (vocabulary) that predict token index(); empty behind the last. Valid until the next
  /// call.
  std::span<const float> next();
  size_t index() const { return chunk_ + at_ + row_; }

 private:
  bool run_rows();

  const Model& model_;
  std::span<const int32_t> tokens_;
  PerplexityOptions options_;
  KVCache cache_;
  Workspace workspace_;
  std::vector<int32_t> parents_, logit_rows_;
  ForwardOutput output_{};
  std::optional<SeqId> sequence_;
  size_t chunk_ = 0;  // first token of the chunk under way
  size_t at_ = 0;     // in the chunk: first row of the last pass
  size_t rows_ = 0;   // of the last pass
  size_t row_ = 0;    // of them: handed out
};

struct Perplexity {
  int scored = 0;  // tokens
  double nll = 0;  // mean, in nats
  double perplexity = 0;
};

/// Throws Error when there is nothing to score or the chunk is longer than the context.
Perplexity measure_perplexity(const Model& model, Backend& backend, std::span<const int32_t> tokens,
                              const PerplexityOptions& options);

/// -log softmax(logits)[token], in double.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

}  // namespace coppice
