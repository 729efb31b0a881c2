// The prompts of an experiment: read from JSON Lines, picked by category, encoded.
//
//   auto prompts = pick_prompts(read_prompts("my.jsonl"), {}, 3);
//   encode_prompts(prompts, tokenizer, false);
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"

namespace coppice {

struct Prompt {
  std::string id, category, text;
  uint32_t request = 0;  // of the noise address: a hash of the id, so independent of the selection
  std::vector<int32_t> ids;
};

/// A line is {"prompt": TEXT} with, if wanted, "id" (else "line-N") and "category" (else "all"), or
/// as published: {"question_id", "category", "turns"} (MT-bench, Spec-Bench: the first turn; the
/// eight categories of MT-bench count as one, as in Spec-Bench's tables) or {"question", "answer"}
/// (GSM8K). Other keys are left alone, empty lines skipped. Throws Error "file.jsonl:12: what;
/// remedy".
std::vector<Prompt> parse_prompts(std::string_view text, std::string_view name);
std::vector<Prompt> read_prompts(const std::filesystem::path& path);
/// Those written for the project: eight categories.
std::vector<Prompt> builtin_prompts();
/// Prompts that warm a machine up: none of them is built in.
std::vector<Prompt> warmup_prompts(int count);

/// The first `per_category` prompts (0: all) of each wanted category (none wanted: all of them), in
/// their order. Throws Error for a category without prompts.
std::vector<Prompt> pick_prompts(std::vector<Prompt> prompts,
                                 std::span<const std::string> categories, int per_category);

/// Fills `ids`: through the model's chat template, or as plain text when `raw`.
void encode_prompts(std::span<Prompt> prompts, const Tokenizer& tokenizer, bool raw);

}  // namespace coppice
