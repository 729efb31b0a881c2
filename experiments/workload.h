// The prompts of an experiment: read from the formats that task sets are published in, picked by
// category, encoded.
//
//   auto prompts = pick_prompts(read_prompts("my.jsonl"), {}, 3);
//   encode_prompts(prompts, tokenizer, false);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer.h"

namespace coppice {

/// Python that decides whether an answer is right (HumanEval, MBPP); see code_tasks.h.
struct CodeTask {
  std::string prefix;       // what the answer goes on from, or needs before it
  std::string test;         // raises when the answer is wrong
  std::string entry_point;  // the function that is asked for
};

struct Prompt {
  std::string id, category, text;
  uint32_t request = 0;  // of the noise address: a hash of the id, so independent of the selection
  std::vector<int32_t> ids;

  std::vector<std::string> later_turns;  // of its conversation
  std::string previous;                  // id of the prompt it follows in one; "": the first
  int most_ids = 0;                      // ids.size(), or a bound while they depend on an answer
  int context = 0;                       // above 0: text to go on from, its last tokens alone
  int question = 0;                      // its number in the set it was published in; 0: none
  std::string set_category;              // what that set calls its category
  std::string raw_text;                  // in place of `text` where no chat template is used
  std::string reference;                 // the right answer, or one to compare with
  std::optional<CodeTask> code;
};

/// Prompts of a file, in a format that its content tells. JSON Lines, or one JSON list; an object
/// is
/// - {"prompt": TEXT} with, if wanted, "id" (else "line-N"), "category" (else "all"), "reference";
/// - {"ids": [1, 2, 3]}: token ids, with "id" and "category" likewise;
/// - {"question_id", "category", "turns"} (MT-bench, Spec-Bench; the eight categories of MT-bench
///   count as one, as in Spec-Bench's tables), {"question", "answer"} (GSM8K), {"task_id",
///   "prompt", "test", "entry_point"} (HumanEval), {"task_id", "text" or "prompt", "test_list"}
///   (MBPP),
///   {"task_id", "prompt", "assertion"} (MBPP+), {"instruction", "instances"} (self-instruct).
/// Other keys are left alone, empty lines skipped. Lines of whole numbers are token ids, a prompt
/// each; any other text is plain, a prompt a line. Throws Error "file.jsonl:12: what; remedy".
std::vector<Prompt> parse_prompts(std::string_view text, std::string_view name);
std::vector<Prompt> read_prompts(const std::filesystem::path& path);
/// `count` prompts of `context` tokens from a plain text, to go on from without a chat template.
/// Each ends at the same place of the text for every `context`. Throws Error for a file of prompts.
std::vector<Prompt> read_text_series(const std::filesystem::path& path, int context, int count);
/// Those written for the project: eight categories.
std::vector<Prompt> builtin_prompts();
/// Prompts that warm a machine up: none of them is built in.
std::vector<Prompt> warmup_prompts(int count);

/// Lists each prompt's later turns, at most `turns` in all (0: every one), as prompts behind it.
std::vector<Prompt> with_turns(std::vector<Prompt> prompts, int turns);

/// The first `per_category` prompts (0: all) of each wanted category (none wanted: all of them), in
/// their order. Throws Error for a category without prompts.
std::vector<Prompt> pick_prompts(std::vector<Prompt> prompts,
                                 std::span<const std::string> categories, int per_category);

/// Fills `ids`: through the model's chat template, or as plain text when `raw`; and `most_ids`, for
/// later turns by `max_new_tokens` of the answers before them. Throws Error for a text that is
/// shorter than its context, and for later turns without a template.
void encode_prompts(std::span<Prompt> prompts, const Tokenizer& tokenizer, bool raw,
                    int max_new_tokens = 0);
/// The ids of a later turn, its `earlier` messages and their answers taking turns.
std::vector<int32_t> encode_turn(std::span<const std::string> earlier, const Prompt& prompt,
                                 const Tokenizer& tokenizer);

}  // namespace coppice
