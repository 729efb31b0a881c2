// The data step: the target answers prompts, many at once, and the texts are kept in files of a few
// prompts each, so that a run that was interrupted goes on where it stopped.
//
//   Answers answers = answer_prompts(config.data, prompts, target, backend, folder);
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "experiments/decoder.h"
#include "experiments/training/train_options.h"
#include "experiments/workload.h"

namespace coppice {

struct TrainText {
  std::vector<int32_t> tokens;
  int answer = 0;  // index of the answer's first token
};

struct Answers {
  std::vector<TrainText> train, validation;
};

/// Prompts of the files and those that the target writes itself, encoded and shuffled; the first
/// `validation` of them are for validation. Written prompts are kept in the folder like answers.
std::vector<Prompt> training_prompts(const DataOptions& options, const std::filesystem::path& base,
                                     const LoadedModel& target, Backend& backend,
                                     const std::filesystem::path& folder);

/// The prompts are encoded. Reuses what lies in the folder. Throws Error when that was made with
/// other settings, or when no text is left.
Answers answer_prompts(const DataOptions& options, std::span<const Prompt> prompts,
                       const LoadedModel& target, Backend& backend,
                       const std::filesystem::path& folder);

/// The `count` most frequent tokens of the answers, ascending, filled up with the lowest ids; 0, or
/// as many as the vocabulary has: empty, which is all.
std::vector<int32_t> frequent_tokens(std::span<const TrainText> texts, int vocabulary, int count);

}  // namespace coppice
