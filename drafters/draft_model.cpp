// See draft_model.h.
#include "drafters/draft_model.h"

#include <algorithm>

#include "decoding/draft_sampling.h"

namespace coppice {
namespace {

constexpr int kChunk = 256;  // rows fed at once when a sequence lags far behind: a new prompt
constexpr int kLag = 8;      // rows a sequence may bring into the first batched round

void require_same_vocabulary(const Tokenizer& target, const Tokenizer& draft) {
  const int common = std::min(target.size(), draft.size());
  for (int32_t id = 0; id < common; ++id) {
    if (target.token_text(id) == draft.token_text(id)) continue;
    throw Error(
        "the draft model has another vocabulary: token {} is '{}' there and '{}' in the "
        "target; use a draft model of the target's family",
        id, draft.token_text(id), target.token_text(id));
  }
  if (target.size() != draft.size()) {
    throw Error(
        "the draft model has another vocabulary: {} tokens there, {} in the target; use a "
        "draft model of the target's family",
        draft.size(), target.size());
  }
}

}  // namespace

DraftModel::DraftModel(const DraftModelOptions& options, const MethodParts& parts)
    : options_(options),
      model_(parts.draft_model),
      context_(std::min(parts.context, parts.draft_model->context())),
      cache_(*parts.backend, parts.draft_model->kv_shapes(),
             parts.sequences * KVCache::pages_for(context_)),
      workspace_(
          *parts.draft_model, *parts.backend,
          {.rows = std::max(kChunk, parts.sequences * kLag), .logit_rows = parts.sequences}) {
  require_same_vocabulary(*parts.tokenizer, *parts.draft_tokenizer);
}

DraftModel::State& DraftModel::state_of(SeqId sequence) {
  if (static_cast<size_t>(sequence) >= states_.size()) {
    states_.resize(static_cast<size_t>(sequence) + 1);
  }
  State& state = states_[static_cast<size_t>(sequence)];
  if (state.kv < 0) state.kv = cache_.open();
  return state;
}

void DraftModel::propose(std::span<DraftJob> jobs) {
  chains_.clear();
  for (DraftJob& job : jobs) {
    if (static_cast<int>(job.tokens.size()) >= context_) continue;  // the draft model ends earlier
    chains_.push_back({&job, &state_of(job.sequence), 0, {}});
  }
  for (Chain& chain : chains_) {
    // What was drafted and accepted is in the cache already; what was rejected goes. Node 0 is
    // always fed anew: its logits give the first draft.
    State& state = *chain.state;
    const std::span<const int32_t> tokens = chain.job->tokens;
    const auto same =
        std::mismatch(state.fed.begin(), state.fed.end(), tokens.begin(), tokens.end() - 1);
    state.fed.erase(same.first, state.fed.end());
    cache_.truncate(state.kv, static_cast<int>(state.fed.size()));
    while (static_cast<int>(tokens.size() - state.fed.size()) > kLag) {
      const auto rest = tokens.subspan(state.fed.size());
      const auto chunk = rest.first(std::min<size_t>(kChunk, rest.size() - 1));
      chain.pending.assign(chunk.begin(), chunk.end());
      feed({&chain, 1}, false);
    }
    chain.pending.assign(tokens.begin() + static_cast<ptrdiff_t>(state.fed.size()), tokens.end());
  }
  // Leviathan 2023, Alg. 1, l. 1-3: x_i ~ q_i(x), one after the other; here for all sequences at
  // once.
  for (int i = 0; i < options_.draft_length && !chains_.empty(); ++i) {
    const ForwardOutput output = feed(chains_, true);
    for (size_t c = 0; c < chains_.size(); ++c) {
      Chain& chain = chains_[c];
      const std::span<const float> logits(output.logits_of(static_cast<int>(c)),
                                          static_cast<size_t>(output.vocabulary));
      chain.node = add_drawn(*chain.job, chain.node, logits);
      if (chain.node > 0) chain.pending.assign(1, chain.job->tree->token(chain.node));
    }
    std::erase_if(chains_, [&](const Chain& chain) {
      return chain.node <= 0 || chain.job->tree->room() == 0 ||
             chain.job->tree->depth(chain.node) == chain.job->tree->most_depth() ||
             static_cast<int>(chain.state->fed.size()) >= context_;
    });
  }
}

// Runs every chain's pending tokens through the draft model and keeps them in its cache. Logits,
// when wanted, are those behind each chain's last token, in the order of the chains.
ForwardOutput DraftModel::feed(std::span<Chain> chains, bool wants_logits) {
  std::vector<KVCache::Tail> tails;
  packed_.clear();
  for (Chain& chain : chains) {
    const int rows = static_cast<int>(chain.pending.size());
    const int committed = cache_.committed(chain.state->kv);
    auto tail = cache_.reserve(chain.state->kv, rows);
    COPPICE_CHECK(tail.has_value());  // there are pages for every sequence's whole context
    tails.push_back(std::move(*tail));
    packed_.add(chain.pending, nullptr, committed, cache_.pages(chain.state->kv), wants_logits);
  }
  const ForwardOutput output = model_->forward(packed_.batch(), cache_, workspace_);
  for (size_t c = 0; c < chains.size(); ++c) {
    Chain& chain = chains[c];
    chain.state->fed.insert(chain.state->fed.end(), chain.pending.begin(), chain.pending.end());
    cache_.commit_all(std::move(tails[c]));
  }
  return output;
}

void DraftModel::forget(SeqId sequence, Reason) {
  if (static_cast<size_t>(sequence) >= states_.size()) return;
  State& state = states_[static_cast<size_t>(sequence)];
  if (state.kv >= 0) cache_.close(state.kv);
  state = {};
}

}  // namespace coppice
