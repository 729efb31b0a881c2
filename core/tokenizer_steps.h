// What a tokenizer.json does to a text before and behind its model, told from its normalizer,
// pre_tokenizer and post_processor. Each is matched as a whole against those known to give the ids
// that core/tokenizer.h gives; all else is refused.
// Source: the serialised form of the tokenizers library, by its keys.
//
//   std::string pre = read_pre_tokenizer(tokenizer);   // "qwen2"
#pragma once

#include <string>

#include "core/json_object.h"

namespace coppice {

/// The name that PreTokenizer knows a byte-level tokenizer's split by. Throws Error naming the key,
/// with the regular expression where that is unknown, and for a normalizer other than NFC.
std::string read_pre_tokenizer(const JsonObject& tokenizer);
/// Throws Error unless spaces become U+2581 and nothing else happens to the text.
void check_space_escapes(const JsonObject& tokenizer);
/// The token that is put in front of every text; empty: none. Throws Error when more is added.
std::string read_token_in_front(const JsonObject& tokenizer);

}  // namespace coppice
