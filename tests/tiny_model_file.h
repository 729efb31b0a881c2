// A tiny model as a file, with a tokenizer over bytes: what a whole command needs.
//
//   write_tiny_model(scratch / "tiny.gguf");
#pragma once

#include <filesystem>
#include <fstream>

#include "tests/tiny_gguf.h"
#include "tests/tiny_vocabulary.h"

namespace coppice::test {

/// A llama of two layers; 128 positions. Without a chat template.
inline void write_tiny_model(const std::filesystem::path& path) {
  const Vocabulary vocabulary = byte_vocabulary("gpt-2", {"h e"});
  TinyFileShape shape;
  shape.vocabulary = static_cast<uint32_t>(vocabulary.tokens.size());
  GgufImage image = tiny_model("llama", shape);
  std::vector<int32_t> types;
  for (const TokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
  image.key("tokenizer.ggml.model", "gpt2")
      .key("tokenizer.ggml.pre", "gpt-2")
      .key("tokenizer.ggml.tokens", vocabulary.tokens)
      .key("tokenizer.ggml.merges", vocabulary.merges)
      .key("tokenizer.ggml.token_type", types)
      .key("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(vocabulary.eos));
  const Bytes bytes = image.bytes();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

}  // namespace coppice::test
