// Measures one item when told, for a program that measures other engines in turn: the protocol of
// experiments/peers. A request and its reply are one JSON object a line; between them nothing runs.
//
//   {"measure": "decode", "prompts": [[1, 2, 3]], "new_tokens": 128, "draft_length": 3}
//   {"prefill_s": 0.02, "decode_s": 0.4, "ids": [[4, 5, ...]], "steps": 90}
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "experiments/decoder.h"
#include "experiments/step_timer.h"

namespace coppice {

class Worker {
 public:
  /// Loads the model. Throws Error as load_model and make_backend do.
  Worker(const std::filesystem::path& model, const BackendOptions& machine);

  /// Answers one request, by its "measure":
  /// - "describe": {"engine", "version", "settings", "machine", "model"};
  /// - "encode", "texts": ids of each as a chat's user message, and the ids that end an answer;
  /// - "decode", "prompts" (all at once), "new_tokens", "draft_length" (0: none, else by prompt
  ///   lookup): greedy, the ids that end an answer never drawn. prefill_s to the first token of
  ///   all, decode_s from there to the last;
  /// - "prefill", "ids": seconds to the first token behind them;
  /// - "rows", "context", "rows", "repeats": median seconds of a step of so many rows, by rows.
  /// A request that cannot be served gives {"error": why}.
  nlohmann::ordered_json answer(const nlohmann::json& request);

 private:
  nlohmann::ordered_json encode(const nlohmann::json& request) const;
  nlohmann::ordered_json decode(const nlohmann::json& request);
  nlohmann::ordered_json prefill(const nlohmann::json& request);
  nlohmann::ordered_json rows(const nlohmann::json& request);

  OpListener backend_;
  LoadedModel loaded_;
};

}  // namespace coppice
