// See methods.h.
#include "drafters/methods.h"

#include "core/quote.h"
#include "drafters/draft_model.h"
#include "drafters/jacobi.h"
#include "drafters/layer_skip.h"
#include "drafters/prompt_lookup.h"
#include "drafters/retrieval.h"
#include "drafters/sam.h"
#include "drafters/suffix.h"
#include "drafters/token_recycling.h"
#include "drafters/universal_draft.h"

namespace coppice {
namespace {

struct NoOptions {
  template <class Visitor>
  void visit(Visitor&) {}
};

std::unique_ptr<Drafter> make_baseline(const OptionMap& options, const MethodParts&) {
  read_options<NoOptions>(options, "autoregressive");
  return nullptr;
}

template <class Options, class Made>
std::unique_ptr<Drafter> make_from_text(const OptionMap& options, const MethodParts&) {
  return std::make_unique<Made>(read_options<Options>(options, "method"));
}

template <class Options, class Made>
std::unique_ptr<Drafter> make_from_models(const OptionMap& options, const MethodParts& parts) {
  return std::make_unique<Made>(read_options<Options>(options, "method"), parts);
}

// Columns: name, paper, summary, needs a draft model, options, maker.
constexpr MethodEntry kMethods[] = {
    {"autoregressive", "-", "one token a step: the baseline", false, describe_options<NoOptions>,
     make_baseline},
    {"prompt_lookup", "Saxena 2023", "what followed the last n tokens earlier in the text", false,
     describe_options<PromptLookupOptions>, make_from_text<PromptLookupOptions, PromptLookup>},
    {"suffix", "Oliaro 2024", "what followed the longest suffixes, as a tree with counts", false,
     describe_options<SuffixOptions>, make_from_text<SuffixOptions, SuffixDecoding>},
    {"sam", "Hu 2024", "what followed the longest suffix, by a suffix automaton", false,
     describe_options<SamOptions>, make_from_models<SamOptions, SamDecoding>},
    {"retrieval", "He 2023", "what followed the longest context in a datastore of texts", false,
     describe_options<RetrievalOptions>, make_from_models<RetrievalOptions, Retrieval>},
    {"token_recycling", "Luo 2024", "the target's own candidates, accepted or not, as a tree",
     false, describe_options<TokenRecyclingOptions>,
     make_from_models<TokenRecyclingOptions, TokenRecycling>},
    {"draft_model", "Leviathan 2023, Chen 2023", "a smaller model proposes a chain or a tree", true,
     describe_options<DraftModelOptions>, make_from_models<DraftModelOptions, DraftModel>},
    {"universal_draft", "Timor 2025", "a smaller model with another vocabulary proposes its text",
     true, describe_options<UniversalDraftOptions>,
     make_from_models<UniversalDraftOptions, UniversalDraft>},
    {"layer_skip", "Zhang 2023, Elhoushi 2024", "the target with layers left out drafts for itself",
     false, describe_options<LayerSkipOptions>, make_from_models<LayerSkipOptions, LayerSkip>},
    {"jacobi", "Santilli 2023", "the target's own last answers as guesses, verified at once", false,
     describe_options<JacobiOptions>, make_from_text<JacobiOptions, Jacobi>},
};

}  // namespace

std::span<const MethodEntry> methods() {
  return kMethods;
}

const MethodEntry& find_method(std::string_view name) {
  std::vector<std::string_view> names;
  for (const MethodEntry& method : kMethods) {
    if (method.name == name) return method;
    names.push_back(method.name);
  }
  throw Error("unknown method {}{}", quote(name), suggest_word(name, names));
}

}  // namespace coppice
