// The page of `coppice explain --html`: the explained steps of an answer beside the baseline's
// times, played in a browser. See explain.html.
//
//   write_whole_file("steps.html", explain_page(run));
#pragma once

#include <string>
#include <vector>

#include "experiments/explain.h"

namespace coppice {

struct ToldStep {
  ExplainedStep step;
  StepRecord record;
  std::vector<std::string> pieces;  // whole characters: text of each emitted token
};

struct ExplainedRun {
  std::string method, rule;  // names
  std::string about;         // what they do, in a sentence or two
  std::string setting;       // model, machine, sampling
  std::string prompt;
  std::vector<ToldStep> steps;
  std::vector<double> baseline_ms;  // a step each, one for every token after the first
};

std::string explain_page(const ExplainedRun& run);

}  // namespace coppice
