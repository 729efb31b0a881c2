// See methods.h.
#include "drafters/methods.h"

#include <algorithm>

#include "core/quote.h"
#include "drafters/cascade.h"
#include "drafters/draft_model.h"
#include "drafters/eagle.h"
#include "drafters/hydra.h"
#include "drafters/jacobi.h"
#include "drafters/layer_skip.h"
#include "drafters/lookahead.h"
#include "drafters/medusa.h"
#include "drafters/oracle.h"
#include "drafters/prompt_lookup.h"
#include "drafters/retrieval.h"
#include "drafters/sam.h"
#include "drafters/scripted.h"
#include "drafters/suffix.h"
#include "drafters/synthetic.h"
#include "drafters/token_recycling.h"
#include "drafters/universal_draft.h"

namespace coppice {
namespace {

std::unique_ptr<Drafter> make_baseline(const OptionMap& options, const MethodParts&) {
  read_options<NoOptions>(options, "autoregressive");
  return nullptr;
}

template <class Options, class Made>
std::unique_ptr<Drafter> make_from_text(const OptionMap& options, const MethodParts&) {
  return std::make_unique<Made>(read_options<Options>(options, "method"));
}

/// `coppice replay` has token ids and no model.
void require_models(const MethodParts& parts) {
  if (parts.target != nullptr) return;
  throw Error("the method needs the model; only methods that see token ids alone can be replayed");
}

/// Entries that are not what they would be anyway: a manifest writes every default out.
template <class Options>
OptionMap but_defaults(OptionMap options) {
  for (const OptionEntry& usual : dump_options(Options())) {
    std::erase_if(options, [&](const OptionEntry& given) {
      return given.key == usual.key && given.value == usual.value;
    });
  }
  return options;
}

template <class Options>
Options read_checked(const OptionMap& options, std::string_view place) {
  const auto read = read_options<Options>(options, place);
  if constexpr (requires { check_shape_options(options, read); }) {
    check_shape_options(but_defaults<Options>(options), read);
  }
  return read;
}

template <class Options, class Made>
std::unique_ptr<Drafter> make_from_models(const OptionMap& options, const MethodParts& parts) {
  require_models(parts);
  return std::make_unique<Made>(read_checked<Options>(options, "method"), parts);
}

template <const char* kKind>
std::unique_ptr<Drafter> make_eagle(const OptionMap& options, const MethodParts& parts) {
  require_models(parts);
  return std::make_unique<Eagle>(kKind, read_checked<EagleOptions>(options, kKind), parts);
}
constexpr char kEagle[] = "eagle", kEagle3[] = "eagle3";

std::unique_ptr<Drafter> make_oracle(const OptionMap& options, const MethodParts& parts) {
  const auto read = read_options<OracleOptions>(options, "oracle");
  if (!read.answers.empty()) return std::make_unique<Oracle>(read);
  require_models(parts);
  MethodParts itself = parts;
  itself.draft_model = parts.target;
  itself.draft_tokenizer = parts.tokenizer;
  return std::make_unique<DraftModel>(DraftModelOptions{.draft_length = read.depth}, itself);
}

std::unique_ptr<Drafter> make_scripted(const OptionMap& options, const MethodParts& parts) {
  const int vocabulary = parts.tokenizer != nullptr ? parts.tokenizer->size() : INT32_MAX;
  return std::make_unique<Scripted>(read_options<ScriptedOptions>(options, "scripted"), vocabulary);
}

std::vector<const MethodEntry*> parts_of(const MethodEntry& method, const OptionMap& given);

std::unique_ptr<Drafter> make_cascade(const OptionMap& options, const MethodParts& parts) {
  OptionMap own = options;
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const MethodEntry* part : parts_of(find_method("cascade"), options)) {
    drafters.push_back(part->make(take_table(own, part->name), parts));
  }
  const auto read = read_options<CascadeOptions>(own, "cascade");
  return std::make_unique<Cascade>(
      std::move(drafters), read.mode == "merge" ? Cascade::Mode::merge : Cascade::Mode::first);
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
    {"medusa", "Cai 2024", "heads on the target's last hidden state, each for a token further on",
     false, describe_options<MedusaOptions>, make_from_models<MedusaOptions, Medusa>},
    {"hydra", "Ankner 2024", "Medusa's heads, each of which sees what was drafted before it", false,
     describe_options<HydraOptions>, make_from_models<HydraOptions, Hydra>},
    {"eagle", "Li 2024", "one layer drafts the target's hidden states and tokens in turn", false,
     describe_options<EagleOptions>, make_eagle<kEagle>},
    {"eagle3", "Li 2025", "one layer on low, middle and high states, trained on its own drafts",
     false, describe_options<EagleOptions>, make_eagle<kEagle3>},
    {"layer_skip", "Zhang 2023, Elhoushi 2024", "the target with layers left out drafts for itself",
     false, describe_options<LayerSkipOptions>, make_from_models<LayerSkipOptions, LayerSkip>},
    {"jacobi", "Santilli 2023", "the target's own last answers as guesses, verified at once", false,
     describe_options<JacobiOptions>, make_from_text<JacobiOptions, Jacobi>},
    {"lookahead", "Fu 2024", "n-grams from a window of the target's own parallel guesses", false,
     describe_options<LookaheadOptions>, make_from_text<LookaheadOptions, Lookahead>},
    {"cascade", "-", "several methods under one budget, in turn or in one tree", false,
     describe_options<CascadeOptions>, make_cascade, "", "methods"},
    {"oracle", "-", "knows what comes next: an upper bound", false, describe_options<OracleOptions>,
     make_oracle},
    {"synthetic", "-", "filler tokens, accepted by coin: times without a meaning", false,
     describe_options<SyntheticOptions>, make_from_text<SyntheticOptions, Synthetic>, "forced"},
    {"scripted", "-", "what a script says, step by step", false, describe_options<ScriptedOptions>,
     make_scripted},
};

// The methods that a method is made of, as its options list them.
std::vector<const MethodEntry*> parts_of(const MethodEntry& method, const OptionMap& given) {
  if (method.parts.empty()) return {};
  std::vector<std::string> names = CascadeOptions().methods;
  for (const OptionEntry& entry : given) {
    const auto* listed = std::get_if<std::vector<std::string>>(&entry.value);
    if (entry.key == method.parts && listed != nullptr) names = *listed;
  }
  std::vector<const MethodEntry*> parts;
  for (const std::string& name : names) {
    const MethodEntry& part = find_method(name);
    if (part.name == "autoregressive" || !part.parts.empty()) {
      throw Error("{}: {}: {} drafts nothing of its own; name methods that do", method.name,
                  method.parts, quote(name));
    }
    if (std::find(parts.begin(), parts.end(), &part) != parts.end()) {
      throw Error("{}: {}: {} is named twice; name it once", method.name, method.parts,
                  quote(name));
    }
    parts.push_back(&part);
  }
  if (parts.empty()) throw Error("{}: {}: is empty; name at least one", method.name, method.parts);
  return parts;
}

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

std::vector<OptionDoc> options_of(const MethodEntry& method, const OptionMap& given) {
  std::vector<OptionDoc> docs = method.describe();
  for (const MethodEntry* part : parts_of(method, given)) {
    const auto inner = docs_in_table(part->describe(), part->name);
    docs.insert(docs.end(), inner.begin(), inner.end());
  }
  return docs;
}

bool needs_draft_model(const MethodEntry& method, const OptionMap& given) {
  const auto parts = parts_of(method, given);
  return method.needs_draft_model ||
         std::any_of(parts.begin(), parts.end(),
                     [](const MethodEntry* part) { return part->needs_draft_model; });
}

std::string_view default_rule(const MethodEntry& method, float temperature) {
  if (!method.rule.empty()) return method.rule;
  return temperature == 0.0f ? "greedy" : "coupled";
}

}  // namespace coppice
