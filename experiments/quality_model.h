// How far a model's distributions are from those of a reference, token by token over a text: what a
// quantised or fast backend changes. KL is of the reference's distribution from ours, in nats.
//
//   SavedLogits base("base.logits", tokens, 512);
//   DistributionQuality q = compare_distributions(ours, tokens, [&] { return base.next(); });
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <vector>

#include "experiments/perplexity.h"

namespace coppice {

struct DistributionQuality {
  int scored = 0;                     // tokens
  double nll = 0, reference_nll = 0;  // means, in nats
  double kl = 0, kl_p99 = 0, kl_most = 0;
  double top1_agreement = 0;  // share of tokens where both find the same one the most probable
};

/// Logits (vocabulary) in the order of a TextScorer; empty at the end.
using LogitSource = std::function<std::span<const float>()>;

/// Logits that are equal but for a constant are the same distribution.
DistributionQuality compare_distributions(TextScorer& ours, std::span<const int32_t> tokens,
                                          const LogitSource& reference);

/// Writes a model's logits over a text, half precision: 2 bytes a token and word of the vocabulary.
/// Throws Failure when the file cannot be written.
void save_logits(const std::filesystem::path& path, TextScorer& scorer,
                 std::span<const int32_t> tokens, int chunk);

/// What save_logits() wrote.
class SavedLogits {
 public:
  /// Throws Error when the file is none, or is of other tokens or another chunk.
  SavedLogits(const std::filesystem::path& path, std::span<const int32_t> tokens, int chunk);
  /// Throws Error where the file ends.
  std::span<const float> next();

 private:
  std::filesystem::path path_;
  std::ifstream in_;
  std::vector<uint16_t> halves_;
  std::vector<float> logits_;
};

}  // namespace coppice
