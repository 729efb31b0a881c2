// Time of a step's draft for the drafters that see only ids, at the given context: the last
// tokens are taken in and a tree is grown. A step of SmolLM2 takes about 2.5 ms; a draft should
// stay below 100 us, whatever the n-gram range.
//
//   build/release/bench/drafters_bench --benchmark_filter=prompt_lookup
#include <benchmark/benchmark.h>

#include <filesystem>

#include "core/datastore.h"
#include "drafters/methods.h"
#include "drafters/prompt_lookup.h"
#include "drafters/retrieval.h"
#include "drafters/sam.h"
#include "drafters/suffix.h"
#include "tests/id_replay.h"
#include "tests/tiny_vocabulary.h"

namespace coppice {
namespace {

constexpr size_t kStep = 2;  // tokens emitted between two drafts

/// Drafts at contexts from `context` on; what came before is taken in first, untimed.
void draft(benchmark::State& state, const std::function<std::unique_ptr<Drafter>()>& make,
           const std::vector<int32_t>& text, size_t context) {
  std::unique_ptr<Drafter> drafter;
  TokenTree tree;
  DraftJob job;
  job.tree = &tree;
  size_t size = text.size();
  const auto propose = [&] {
    job.tokens = std::span(text).first(size);
    tree.reset(text[size - 1], drafter->needs().most_nodes);
    drafter->propose({&job, 1});
  };
  for (auto _ : state) {
    if (size + kStep > text.size()) {
      state.PauseTiming();
      drafter = make();
      size = context;
      propose();
      state.ResumeTiming();
    }
    size += kStep;
    propose();
  }
}

void prompt_lookup(benchmark::State& state) {
  const auto text = test::phrase_text(1, 2600);
  const int max_ngram = static_cast<int>(state.range(0));
  draft(
      state,
      [&] { return std::make_unique<PromptLookup>(PromptLookupOptions{.max_ngram = max_ngram}); },
      text, 2048);
}
BENCHMARK(prompt_lookup)->ArgName("max_ngram")->Arg(1)->Arg(3)->Arg(10)->Arg(16);

/// 0: phrases with slips; 1: one phrase again and again, the worst case for match lengths.
std::vector<int32_t> bench_text(int64_t kind, size_t length) {
  auto text = test::phrase_text(1, length);
  if (kind == 1) {
    for (size_t i = 100; i < length; ++i) text[i] = text[i - 100];
  }
  return text;
}

void suffix(benchmark::State& state) {
  draft(
      state, [] { return std::make_unique<SuffixDecoding>(SuffixOptions{}); },
      bench_text(state.range(0), 2600), 2048);
}
BENCHMARK(suffix)->ArgName("repeats")->Arg(0)->Arg(1);

void sam(benchmark::State& state) {
  draft(
      state, [] { return std::make_unique<SamDecoding>(SamOptions{}, MethodParts{}); },
      bench_text(state.range(0), 2600), 2048);
}
BENCHMARK(sam)->ArgName("repeats")->Arg(0)->Arg(1);

/// Of a datastore with that many tokens.
void retrieval(benchmark::State& state) {
  const Tokenizer tokenizer(test::byte_vocabulary("gpt-2"));
  const auto path = std::filesystem::temp_directory_path() / "drafters_bench.store";
  auto tokens = test::phrase_text(1, static_cast<size_t>(state.range(0)));
  tokens.push_back(Datastore::kEnd);
  write_datastore(path, tokens, tokenizer.vocabulary());
  const MethodParts parts{.tokenizer = &tokenizer};
  draft(
      state,
      [&] {
        return std::make_unique<Retrieval>(RetrievalOptions{.datastore = path.string()}, parts);
      },
      test::phrase_text(1, 2600), 2048);
  std::filesystem::remove(path);
}
BENCHMARK(retrieval)->ArgName("tokens")->Arg(10'000)->Arg(1'000'000);

}  // namespace
}  // namespace coppice

BENCHMARK_MAIN();
