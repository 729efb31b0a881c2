// SamplingParams as options of a config or a command line.
//
//   auto options = read_options<SamplingOptions>(table, "bench.toml [sampling]");
//   SamplingParams params = options.params();
#pragma once

#include <string>
#include <vector>

#include "core/options.h"
#include "core/sampling.h"

namespace coppice {

struct SamplingOptions {
  SamplingParams values;  // all but logit_bias
  std::vector<std::string> logit_bias;

  /// Throws Error for a bias that is not "ID:BIAS". Ranges that depend on the vocabulary are
  /// checked by validate() in core/sampling.h.
  SamplingParams params() const;

  template <class V>
  void visit(V& v) {
    v("temperature", values.temperature, "0 takes the most probable token", Range{0, 1000});
    v("top_k", values.top_k, "draw from the k most probable tokens; 0: off", Range{0, 1e9});
    v("top_p", values.top_p, "draw from the smallest set that reaches this probability",
      Range{0, 1});
    v("min_p", values.min_p, "drop tokens below this share of the largest probability",
      Range{0, 1});
    v("repetition_penalty", values.repetition_penalty, "of tokens in the window; 1: off",
      Range{0.01, 100});
    v("presence_penalty", values.presence_penalty, "subtracted once for a token in the window",
      Range{-100, 100});
    v("frequency_penalty", values.frequency_penalty, "subtracted for each occurrence",
      Range{-100, 100});
    v("penalty_window", values.penalty_window, "last tokens that penalties look at", Range{0, 1e9});
    v("logit_bias", logit_bias, "list of \"ID:BIAS\", added to a token's logit");
    v("seed", values.seed, "of all noise: same seed, same text");
  }
};

}  // namespace coppice
