// A datastore: the token ids of some texts and their suffix array in one memory-mapped file, in
// which every place where a string of tokens occurs is one range. Source: He 2023, "REST:
// Retrieval-Based Speculative Decoding", section 3.1. Nothing in a file is believed: its size, ids
// and places are checked when it is opened, and its bytes against a checksum.
//
//   Datastore store("wiki.store");
//   Datastore::Range range = store.find(context);
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "core/tokenizer.h"

namespace coppice {

/// A hash of all that decides which ids a text gets.
uint64_t tokenizer_fingerprint(const Vocabulary& vocabulary);
/// Of a file behind its header of kDatastoreHeader bytes, whose last 8 it is.
uint64_t datastore_checksum(std::span<const std::byte> body);
inline constexpr size_t kDatastoreHeader = 40;

class Datastore {
 public:
  static constexpr int32_t kEnd = -1;       // stands behind each text
  static constexpr int kSortedTokens = 32;  // suffixes are in order by that many first tokens
  static constexpr size_t kMostTokens = (size_t{1} << 31) - 1;

  /// Throws Error naming the file and what is wrong with it.
  explicit Datastore(const std::filesystem::path& path);
  /// Reads an image in memory, 8-byte aligned, that outlives the object; `name` is for messages.
  Datastore(std::string name, std::span<const std::byte> image);

  const std::string& name() const { return name_; }
  uint64_t tokenizer() const { return tokenizer_; }
  int vocabulary() const { return vocabulary_; }
  size_t tokens() const { return tokens_.size(); }

  /// Places [first, last) of the suffix array.
  struct Range {
    size_t first = 0, last = 0;
    size_t size() const { return last - first; }
  };
  /// Where `context` occurs, at most kSortedTokens tokens.
  Range find(std::span<const int32_t> context) const;
  /// Of a range whose suffixes share their first `depth` tokens, those that go on with `token`.
  Range narrow(Range range, int depth, int32_t token) const;
  /// Token number `depth` of the suffix at `place`; kEnd behind its text's end.
  int32_t token(size_t place, int depth) const {
    const size_t at = suffixes_[place] + static_cast<size_t>(depth);
    return at < tokens_.size() ? tokens_[at] : kEnd;
  }

 private:
  void parse(std::span<const std::byte> image);

  std::unique_ptr<MappedFile> file_;
  std::string name_;
  uint64_t tokenizer_ = 0;
  int vocabulary_ = 0;
  std::span<const int32_t> tokens_;
  std::span<const uint32_t> suffixes_;
};

/// Sorts the suffixes of `tokens`, kEnd behind each text, and writes them beside `path`, then
/// renames. Memory: 4 bytes a token beside `tokens`. `on_progress` is told how many are sorted.
/// Throws Failure when the file cannot be written.
void write_datastore(const std::filesystem::path& path, std::span<const int32_t> tokens,
                     const Vocabulary& vocabulary,
                     const std::function<void(size_t)>& on_progress = {});

}  // namespace coppice
