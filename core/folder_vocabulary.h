// The vocabulary of a Hugging Face folder: tokenizer.json, with the chat template and the ids that
// tokenizer_config.json, chat_template.jinja, generation_config.json and config.json name.
// Source: the serialised form of the tokenizers library, by its keys.
//
//   Tokenizer tokenizer(read_folder_vocabulary("model", config));
#pragma once

#include <filesystem>

#include "core/json_object.h"
#include "core/tokenizer.h"

namespace coppice {

/// Tokens, merges and whether a bos is wanted, of a tokenizer.json alone. Added tokens from id
/// `rows` on, which the model has no rows for, are left out. Throws Error as below.
Vocabulary read_tokenizer_json(const JsonObject& tokenizer, int rows);

/// Byte-level BPE with the split of GPT-2, SmolLM, Llama 3 or Qwen 2, or merges over characters
/// with byte fallback, as gemma has. `config` is the folder's config.json. As GGUF files do, text
/// is taken as it is where the tokenizer asks for NFC. Throws Error naming the file and the key: a
/// step that would give other ids (a regex is shown), ids twice or out of range, merges that do not
/// fit.
Vocabulary read_folder_vocabulary(const std::filesystem::path& folder, const JsonObject& config);

}  // namespace coppice
