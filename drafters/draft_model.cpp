// See draft_model.h.
#include "drafters/draft_model.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace coppice {
namespace {

void require_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  constexpr const char* kRemedy =
      "use a draft model of the target's family, or method 'universal_draft'";
  const int common = std::min(target.size(), draft.size());
  for (int32_t id = 0; id < common; ++id) {
    if (target.token_text(id) == draft.token_text(id)) continue;
    throw Error(
        "the draft model has another vocabulary: token {} is '{}' there and '{}' in the target; {}",
        id, draft.token_text(id), target.token_text(id), kRemedy);
  }
  if (target.size() != draft.size()) {
    throw Error("the draft model has another vocabulary: {} tokens there, {} in the target; {}",
                draft.size(), target.size(), kRemedy);
  }
}

/// Of its output layer, which may have rows for some of the target's tokens alone.
DraftVocabulary vocabulary_of(const ModelConfig& draft, const ModelConfig& target) {
  return {draft.output_ids, draft.output_ids.empty() ? draft.vocabulary : target.vocabulary};
}

}  // namespace

DraftModel::DraftModel(const DraftModelOptions& options, const MethodParts& parts)
    : growth_(options, "draft_model"),
      runner_(*parts.draft_model, *parts.backend, parts.sequences, parts.context,
              growth_.most_rows(), growth_.widest()),
      vocabulary_(vocabulary_of(parts.draft_model->config(), parts.target->config())) {
  require_same_vocabulary(*parts.tokenizer, *parts.draft_tokenizer);
}

// Where the draft model's context ends, one token more can still be drafted behind its last row.
int DraftModel::room(const DraftJob& job) const {
  return runner_.context() - static_cast<int>(job.tokens.size()) + 1;
}

int DraftModel::begin(const DraftJob& job) {
  const auto at = static_cast<size_t>(job.sequence);
  if (at >= grown_.size()) grown_.resize(at + 1);
  grown_[at] = &runner_.begin(job.sequence, job.tokens);
  return grown_[at]->root_row();
}

int DraftModel::add(SeqId sequence, int parent_row, int32_t token) {
  return runner_.add(*grown_[static_cast<size_t>(sequence)], parent_row, token);
}

void DraftModel::run(std::span<const SeqId> sequences) {
  running_.clear();
  for (const SeqId sequence : sequences) running_.push_back(grown_[static_cast<size_t>(sequence)]);
  runner_.run(running_);
}

std::span<const float> DraftModel::logits(SeqId sequence, int row) {
  return vocabulary_.spread(runner_.logits(*grown_[static_cast<size_t>(sequence)], row));
}

}  // namespace coppice
