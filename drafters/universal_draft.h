// Universal assisted decoding: a draft model with a vocabulary of its own. The text is encoded
// anew for the draft model, which goes on in its own tokens; what it wrote is encoded for the
// target and proposed as point masses, so that every rule stays lossless. Source: Timor 2025,
// "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for Heterogeneous
// Vocabularies", Alg. 2 (string-level exact match); alignment after Gante 2024, "Universal Assisted
// Generation".
//
//   coppice generate --model smollm2 --draft-model qwen-0.5b --method universal_draft ...
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decoding/draft_pace.h"
#include "decoding/draft_runner.h"
#include "decoding/registry.h"

namespace coppice {

struct UniversalDraftOptions {
  int draft_length = 4;

  template <class Visitor>
  void visit(Visitor& v) {
    v("draft_length", draft_length, "tokens of the draft model a step", Range{1, 64});
  }
};

/// The same text in the ids of another vocabulary, kept up as the text grows: all but the last few
/// ids stay, so that a cache of them does.
class Retokenised {
 public:
  explicit Retokenised(const Tokenizer& other) : other_(&other) { clear(); }
  void clear();
  /// `tokens`, of `own`, extend those of the call before, or replace them.
  void follow(std::span<const int32_t> tokens, const Tokenizer& own);
  std::span<const int32_t> ids() const { return ids_; }

 private:
  const Tokenizer* other_;
  std::string text_;
  size_t seen_ = 0;  // tokens in text_
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;  // where each id's text ends
  bool spells_less_ = false;  // the other vocabulary lacks some of the text
};

/// Ids of `own` for a text that goes on behind `tokens`. The last few tokens and the text are
/// encoded together, since that is how the text would have been encoded, and cut where the tokens
/// end; where a token would reach over that seam, the text is encoded by itself.
std::vector<int32_t> encode_behind(std::span<const int32_t> tokens, const std::string& text,
                                   const Tokenizer& own);

class UniversalDraft : public Drafter {
 public:
  UniversalDraft(const UniversalDraftOptions& options, const MethodParts& parts);
  Needs needs() const override { return {.most_nodes = 2 * options_.draft_length}; }
  void observe(std::span<const Observation>) override {}
  void propose(std::span<DraftJob> jobs) override;
  void forget(SeqId sequence, Reason reason) override;

 private:
  /// One job while the draft model writes.
  struct Writing {
    DraftJob* job = nullptr;
    DraftRunner::Grown* grown = nullptr;
    int row = 0;
    int drafted = 0;
    double reach = 1.0;
    std::string text;
    std::vector<std::pair<size_t, float>> sure;  // where each draft token begins, its probability
  };
  bool write_one(Writing& writing);
  void add_proposal(const Writing& writing) const;

  UniversalDraftOptions options_;
  const Tokenizer* tokenizer_;
  const Tokenizer* draft_tokenizer_;
  DraftRunner runner_;
  Sampler draft_sampler_;  // greedy
  DraftPace pace_;
  std::vector<Retokenised> texts_;  // by SeqId
  std::vector<RankedToken> ranked_;
};

}  // namespace coppice
