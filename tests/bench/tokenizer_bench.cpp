// Speed of the tokenizers: one megabyte of prose, of bytes without a space, of one character, and
// decoding. Each must stay under 2 s; the model files are those of the tests.
//
//   COPPICE_MODELS=... build/release/bench/tokenizer_bench
#include <benchmark/benchmark.h>

#include <map>
#include <optional>
#include <random>
#include <string>

#include "core/tokenizer.h"
#include "tests/test_files.h"

namespace coppice {
namespace {

constexpr size_t kBytes = 1 << 20;

/// Words of varied length with marks, numbers and lines, the same in every run.
std::string prose(bool with_spaces) {
  std::mt19937 random(1);
  const std::string letters = "etaoinshrdlucmfwypvbgk";
  std::string text;
  while (text.size() < kBytes) {
    const uint32_t length = 1 + random() % 4 + random() % 6;
    for (uint32_t i = 0; i < length; ++i)
      text += letters[random() % (1 + random() % letters.size())];
    if (!with_spaces) continue;
    const uint32_t mark = random() % 40;
    text += mark == 0 ? ".\n\n" : mark < 3 ? ", " : mark == 3 ? " 1984 " : mark == 4 ? "'s " : " ";
  }
  text.resize(kBytes);
  return text;
}

const Tokenizer* find_tokenizer(benchmark::State& state, const std::string& model) {
  static std::map<std::string, std::optional<Tokenizer>> loaded;
  const auto [entry, added] = loaded.try_emplace(model);
  if (const auto path = test::model_file(model); added && path) {
    entry->second.emplace(read_vocabulary(GgufFile(*path)));
  }
  if (!entry->second) state.SkipWithError(("COPPICE_MODELS has no " + model).c_str());
  return entry->second ? &*entry->second : nullptr;
}

void encode(benchmark::State& state, const std::string& model, const std::string& text) {
  const Tokenizer* tokenizer = find_tokenizer(state, model);
  if (tokenizer == nullptr) return;
  size_t ids = 0;
  for (auto _ : state) ids = tokenizer->encode(text, SpecialText::parsed).size();
  state.counters["ids"] = static_cast<double>(ids);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void decode(benchmark::State& state, const std::string& model) {
  const Tokenizer* tokenizer = find_tokenizer(state, model);
  if (tokenizer == nullptr) return;
  const auto ids = tokenizer->encode(prose(true), SpecialText::parsed);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->decode(ids));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes));
}

void stream(benchmark::State& state, const std::string& model) {
  const Tokenizer* tokenizer = find_tokenizer(state, model);
  if (tokenizer == nullptr) return;
  const auto ids = tokenizer->encode(prose(true), SpecialText::parsed);
  for (auto _ : state) {
    TextStream text(*tokenizer);
    for (const int32_t id : ids) benchmark::DoNotOptimize(text.push(id));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kBytes));
}

void load(benchmark::State& state, const std::string& model) {
  const auto path = test::model_file(model);
  if (!path) return state.SkipWithError(("COPPICE_MODELS has no " + model).c_str());
  for (auto _ : state) Tokenizer tokenizer(read_vocabulary(GgufFile(*path)));
}

void register_all() {
  for (const auto& [name, model] :
       {std::pair<std::string, std::string>{"smollm", "SmolLM2-135M-Instruct.Q4_1.gguf"},
        {"qwen2", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
        {"gemma", "gemma-3-270m-q4_k_m.gguf"}}) {
    const auto add = [&, &label = name](const std::string& what, auto function) {
      benchmark::RegisterBenchmark((label + "/" + what).c_str(), function)
          ->Unit(benchmark::kMillisecond);
    };
    const auto add_text = [&, &file = model](const std::string& what, const std::string& text) {
      add(what, [=](benchmark::State& state) { encode(state, file, text); });
    };
    add_text("prose", prose(true));
    add_text("without_a_space", prose(false));
    for (const auto& [what, c] : {std::pair("letters", 'a'),
                                  {"spaces", ' '},
                                  {"lines", '\n'},
                                  {"digits", '7'},
                                  {"angles", '<'},
                                  {"ill_formed", '\x80'}}) {
      add_text(std::string("only_") + what, std::string(kBytes, c));
    }
    add("decode", [file = model](benchmark::State& state) { decode(state, file); });
    add("stream", [file = model](benchmark::State& state) { stream(state, file); });
    add("load", [file = model](benchmark::State& state) { load(state, file); });
  }
}

}  // namespace
}  // namespace coppice

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  coppice::register_all();
  benchmark::RunSpecifiedBenchmarks();
}
