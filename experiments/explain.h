// What one step of decoding did, told so that a student can follow it: the drafted tree with each
// token's text, the drafter's q and the target's p, what the rule asked and what it was answered,
// and which rows the cache kept. Told by the engine and the rule themselves; nothing is judged
// twice.
//
//   engine.on_judged = [&](const JudgedStep& step) { told = explain_step(step, tokenizer); };
//   engine.on_step = [&](const StepRecord& r) { fmt::print("{}", explained_text(told, r)); };
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/tokenizer.h"
#include "decoding/engine.h"

namespace coppice {

struct ExplainedNode {
  int32_t token = 0;
  std::string text;
  int parent = -1;
  int row = 0;  // of the pass, within the sequence's: what stands for the same tokens shares one
  bool probe = false;
  std::optional<double> q;  // none: a point mass
  double p = 0.0;           // of the token behind its parent; of node 0: 1
  float score = 0.0f;
  int source = 0;
  enum class Fate { root, accepted, rejected, not_reached, probe } fate = Fate::root;
};

struct ExplainedQuestion {
  Question question;
  std::string text;    // of the token, or of the judged node's
  double noise = 0.0;  // coupled, where temperature is above 0: the Gumbel noise of that token
};

struct ExplainedStep {
  int position = 0;  // of node 0
  int first_position = 0, trunk = 0;
  bool warped = false;  // p has every warp; else it is the softmax that greedy looks at
  std::vector<ExplainedNode> nodes;
  std::vector<ExplainedQuestion> asked;
  std::vector<int> path;
  int32_t token = 0;  // behind the path
  std::string text;
};

ExplainedStep explain_step(const JudgedStep& step, const Tokenizer& tokenizer);
/// A drawn tree and what it came to; `record` is the same step's.
std::string explained_text(const ExplainedStep& step, const StepRecord& record);
nlohmann::ordered_json explained_json(const ExplainedStep& step, const StepRecord& record);

}  // namespace coppice
