// See universal_draft.h.
#include "drafters/universal_draft.h"

#include <algorithm>
#include <chrono>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kWindow = 10;  // tokens before the seam that are encoded anew

}  // namespace

void Retokenised::clear() {
  text_.clear();
  seen_ = 0;
  ids_.clear();
  if (other_->vocabulary().add_bos) ids_.push_back(other_->vocabulary().bos);
  ends_.assign(ids_.size(), 0);
}

void Retokenised::follow(std::span<const int32_t> tokens, const Tokenizer& own) {
  if (tokens.size() < seen_) clear();
  for (; seen_ < tokens.size(); ++seen_) text_ += own.token_text(tokens[seen_]);
  // Where the other vocabulary cannot spell all of the text, ends are not known: nothing is kept.
  const bool exact = !spells_less_;
  size_t kept = exact && ids_.size() > kWindow ? ids_.size() - kWindow : 0;
  if (kept == 0) kept = other_->vocabulary().add_bos ? 1 : 0;
  const size_t from = kept == 0 ? 0 : ends_[kept - 1];
  ids_.resize(kept);
  ends_.resize(kept);
  size_t end = from;
  for (const int32_t id :
       other_->encode(std::string_view(text_).substr(from), SpecialText::parsed)) {
    end += other_->token_text(id).size();
    ids_.push_back(id);
    ends_.push_back(end);
  }
  spells_less_ = end != text_.size();
}

std::vector<int32_t> encode_behind(std::span<const int32_t> tokens, const std::string& text,
                                   const Tokenizer& own) {
  std::string both;
  for (const int32_t id : tokens.last(std::min(tokens.size(), kWindow))) both += own.token_text(id);
  const size_t seam = both.size();
  both += text;
  const std::vector<int32_t> ids = own.encode(both, SpecialText::parsed);
  size_t end = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (end == seam) return {ids.begin() + static_cast<ptrdiff_t>(i), ids.end()};
    end += own.token_text(ids[i]).size();
  }
  return own.encode(text, SpecialText::parsed);
}

UniversalDraft::UniversalDraft(const UniversalDraftOptions& options, const MethodParts& parts)
    : options_(options),
      tokenizer_(parts.tokenizer),
      draft_tokenizer_(parts.draft_tokenizer),
      runner_(*parts.draft_model, *parts.backend, parts.sequences,
              2 * parts.context,  // its tokens may be shorter

              options.draft_length, 1),
      draft_sampler_(
          {}, std::min(parts.draft_tokenizer->size(), parts.draft_model->config().vocabulary), {}) {
  if (!parts.draft_model->config().output_ids.empty()) {
    throw Error(
        "universal_draft: the draft model has the target's own tokens; use method "
        "'draft_model'");
  }
}

void UniversalDraft::propose(std::span<DraftJob> jobs) {
  std::vector<Writing> writings;
  for (DraftJob& job : jobs) {
    if (job.budget == 0 || !pace_.pays(job, 1.0, 0)) continue;
    while (texts_.size() <= static_cast<size_t>(job.sequence)) {
      texts_.emplace_back(*draft_tokenizer_);
    }
    Retokenised& text = texts_[static_cast<size_t>(job.sequence)];
    text.follow(job.tokens, *tokenizer_);
    if (text.ids().empty() || static_cast<int>(text.ids().size()) > runner_.context()) continue;
    DraftRunner::Grown& grown = runner_.begin(job.sequence, text.ids());
    Writing writing;
    writing.job = &job;
    writing.grown = &grown;
    writing.row = grown.root_row();
    writings.push_back(std::move(writing));
  }
  // Alg. 2, l. 2-4: the draft model writes on, in its own tokens.
  while (!writings.empty()) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<DraftRunner::Grown*> running;
    for (const Writing& writing : writings) running.push_back(writing.grown);
    runner_.run(running);
    double follow = 0.0;
    std::erase_if(writings, [&](Writing& writing) {
      const bool ends = !write_one(writing);
      follow += acceptance_of(*writing.job, writing.sure.back().second);
      // Alg. 2, l. 5-6: what it wrote, in the target's tokens.
      if (ends) add_proposal(writing);
      return ends;
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double sequences = static_cast<double>(running.size());
    pace_.learn(taken.count() / sequences, follow / sequences);
  }
}

// The draft model's most probable token; false when it is the last.
bool UniversalDraft::write_one(Writing& writing) {
  draft_sampler_.rank(runner_.logits(*writing.grown, writing.row), {}, 1, ranked_);
  const RankedToken next = ranked_.front();
  writing.sure.emplace_back(writing.text.size(), next.score);
  writing.text += draft_tokenizer_->token_text(next.token);
  writing.reach *= acceptance_of(*writing.job, next.score);
  ++writing.drafted;
  const std::span<const int32_t> stops = draft_tokenizer_->stop_ids();
  const int position =
      static_cast<int>(texts_[static_cast<size_t>(writing.job->sequence)].ids().size()) +
      writing.drafted;
  if (writing.drafted == options_.draft_length || position > runner_.context() ||
      std::find(stops.begin(), stops.end(), next.token) != stops.end() ||
      !pace_.pays(*writing.job, writing.reach, writing.drafted)) {
    return false;
  }
  writing.row = runner_.add(*writing.grown, writing.row, next.token);
  return true;
}

// A target token is as sure as the draft tokens that begin in it.
void UniversalDraft::add_proposal(const Writing& writing) const {
  size_t end = 0;
  auto sure = writing.sure.begin();
  int node = 0;
  for (const int32_t id : encode_behind(writing.job->tokens, writing.text, *tokenizer_)) {
    end += tokenizer_->token_text(id).size();
    float score = 1.0f;
    for (; sure != writing.sure.end() && sure->first < end; ++sure) score *= sure->second;
    node = writing.job->tree->add({.parent = node, .token = id, .score = score});
    if (node < 0) return;
  }
}

void UniversalDraft::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) < texts_.size()) texts_[static_cast<size_t>(sequence)].clear();
  runner_.forget(sequence);
}

}  // namespace coppice
