// Two runs side by side: what changed between them, and whether the figures differ by more than
// chance. Prompts that both answered are compared as pairs. Effect size: Cohen 1988, d for paired
// differences, here of the logarithms of times.
//
//   const Comparison found = compare_runs("results/before", "results/after");
//   fmt::print("{}", comparison_text(found));
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/statistics.h"

namespace coppice {

/// An arm that both runs have.
struct ComparedArm {
  std::string name, rule;
  std::optional<double> figure_a, figure_b;  // speedup; of the baseline: tokens a second
  std::optional<double> tokens_per_step_a, tokens_per_step_b;
  std::optional<double> identical;  // share of common prompts with the same ids in both runs
  /// B's figure over A's, over common prompts; empty without rows of both.
  std::optional<PairedComparison> b_over_a;
};

struct Comparison {
  std::filesystem::path a, b;
  std::vector<std::string> changes;  // "config/bench/seed: 1 -> 2"; none: an A/A check
  size_t prompts_a = 0, prompts_b = 0, common = 0;
  std::vector<ComparedArm> arms;            // the baseline first
  std::vector<std::string> only_a, only_b;  // arms of one run alone
};

/// Folders of runs. Without prompts.jsonl in either, figures come from summary.json and no verdict
/// is given. Throws Error for a folder that holds no run.
Comparison compare_runs(const std::filesystem::path& a, const std::filesystem::path& b);

/// Two figures whose machines may have differed by this much agree.
inline constexpr double kAgreement = kMostDrift;

/// Where B contradicts A: a method's speedup that differs by more than chance and kAgreement, a
/// text that differs under a rule and on a backend that give the same bits. Empty: they agree.
std::vector<std::string> disagreements(const Comparison& comparison);

/// For people, in Markdown.
std::string comparison_text(const Comparison& comparison);

}  // namespace coppice
