// Decoding on a backend by any method, and a model's logits over a text: what the tests of the CUDA
// backend compare.
//
//   CudaModel model(tiny.source(), *backend);
//   auto ids = decode(model, {.method = "jacobi", .rule = "greedy"});
#pragma once

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "core/datastore.h"
#include "decoding/draft_head.h"
#include "decoding/engine.h"
#include "drafters/methods.h"
#include "kernels/backend.h"
#include "tests/tiny_head.h"

namespace coppice::test {

/// A model on a backend. `tokenizer` outlives it.
struct CudaModel {
  CudaModel(const ModelSource& source, Backend& on, const Tokenizer& by)
      : backend(on), tokenizer(by), model(source, on) {}
  Backend& backend;
  const Tokenizer& tokenizer;
  Model model;
};

struct Decoding {
  std::string method = "autoregressive";
  std::string rule = "greedy";
  float temperature = 0.0f;
  int tokens = 10;
  int prompt = 31;           // tokens; the trees then stand across a page's edge
  bool host_judges = false;  // though the backend could
  const Model* draft = nullptr;
};

/// The options that a method cannot do without; what they name is written to `file`.
inline OptionMap options_for(const std::string& method, const CudaModel& target,
                             const std::filesystem::path& file) {
  if (method == "medusa" || method == "hydra" || method.starts_with("eagle")) {
    TinyHead(method, describe_target(target.model), 40).write(file);
    return {{"head", file.string(), "test"}};
  }
  if (method != "retrieval") return {};
  std::vector<int32_t> text;
  for (int i = 0; i < 200; ++i) text.push_back(1 + (i * i + i / 7) % 40);
  text.push_back(Datastore::kEnd);
  write_datastore(file, text, target.tokenizer.vocabulary());
  return {{"datastore", file.string(), "test"}, {"min_context", int64_t{1}, "test"}};
}

/// Ids of two prompts decoded together.
inline std::vector<std::vector<int32_t>> decode(const CudaModel& target, const Decoding& how,
                                                const OptionMap& options = {}) {
  const MethodEntry& method = find_method(how.method);
  MethodParts parts;
  parts.target = &target.model;
  parts.tokenizer = &target.tokenizer;
  parts.backend = &target.backend;
  parts.draft_model = how.draft != nullptr ? how.draft : &target.model;
  parts.draft_tokenizer = &target.tokenizer;
  parts.sequences = 2;
  parts.context = 96;
  const auto rule = make_rule(how.rule);
  const auto drafter = method.make(options, parts);
  EngineLimits limits{.sequences = 2, .context = 96};
  limits.budget = drafter ? std::min(drafter->needs().most_nodes, 12) : 0;
  Engine engine({.target = &target.model,
                 .backend = &target.backend,
                 .tokenizer = &target.tokenizer,
                 .rule = rule.get(),
                 .drafter = drafter.get()},
                limits);
  if (how.host_judges) engine.on_judged = [](const JudgedStep&) {};
  std::vector<RequestId> requests;
  for (int i = 0; i < 2; ++i) {
    Request request;
    for (int t = 0; t < how.prompt + 3 * i; ++t) request.prompt.push_back(1 + (t * (i + 2)) % 11);
    request.stop.max_new_tokens = how.tokens;
    request.sampling.temperature = how.temperature;
    request.sampling.repetition_penalty = i == 0 ? 1.2f : 1.0f;
    request.sampling.top_k = i == 0 ? 20 : 0;
    request.sampling.request = static_cast<uint32_t>(i);
    requests.push_back(engine.submit(std::move(request)));
  }
  while (engine.step()) engine.cache().poison_uncommitted();
  std::vector<std::vector<int32_t>> ids;
  for (const RequestId id : requests) ids.push_back(engine.answer(id).ids);
  return ids;
}

/// Logits of every position of a text, (tokens, vocabulary), computed `chunk` rows at a time.
inline std::vector<float> logits_of(const CudaModel& on, std::span<const int32_t> text, int chunk) {
  const int size = static_cast<int>(text.size());
  Workspace workspace(on.model, on.backend, {.rows = chunk, .logit_rows = chunk});
  KVCache cache(on.backend, on.model.kv_shapes(), KVCache::pages_for(size) + 1);
  const SeqId sequence = cache.open();
  std::vector<float> logits;
  for (int first = 0; first < size; first += chunk) {
    const int rows = std::min(chunk, size - first);
    auto tail = cache.reserve(sequence, rows);
    std::vector<int32_t> parent(static_cast<size_t>(rows)), wanted(parent.size());
    std::iota(parent.begin(), parent.end(), -1);
    std::iota(wanted.begin(), wanted.end(), 0);
    const SequenceRows own{0, rows, first, cache.pages(sequence)};
    ForwardBatch batch;
    batch.token = text.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    batch.parent = parent;
    batch.sequences = {&own, 1};
    batch.logit_rows = wanted;
    const ForwardOutput out = on.model.forward(batch, cache, workspace);
    logits.insert(logits.end(), out.logits.begin(), out.logits.end());
    cache.commit_all(std::move(*tail));
  }
  return logits;
}

}  // namespace coppice::test
