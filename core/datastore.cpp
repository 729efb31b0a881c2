// See datastore.h. The file, little-endian: Header, int32 tokens[n], uint32 suffixes[n].
#include "core/datastore.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string_view>

#include "core/checksum.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8] = {'c', 'o', 'p', 'p', 's', 't', 'o', 'r'};
  uint32_t version = kVersion;
  uint32_t vocabulary = 0;
  uint64_t tokenizer = 0;
  uint64_t tokens = 0;
  uint64_t checksum = 0;  // of what follows the header
};
static_assert(sizeof(Header) == kDatastoreHeader);

}  // namespace

uint64_t tokenizer_fingerprint(const Vocabulary& vocabulary) {
  Checksum sum;
  sum.add(vocabulary.kind == Vocabulary::Kind::byte_bpe ? "byte_bpe" : "score_merges");
  sum.add(vocabulary.pre_tokenizer);
  for (const std::string& token : vocabulary.tokens) sum.add(token);
  sum.add(std::as_bytes(std::span(vocabulary.types)));
  sum.add(std::as_bytes(std::span(vocabulary.scores)));
  for (const std::string& merge : vocabulary.merges) sum.add(merge);
  return sum.value();
}

uint64_t datastore_checksum(std::span<const std::byte> body) {
  const size_t half = body.size() / 2;  // the ids, then the suffixes
  Checksum sum;
  sum.add(body.first(half));
  sum.add(body.subspan(half));
  return sum.value();
}

Datastore::Datastore(const std::filesystem::path& path)
    : file_(std::make_unique<MappedFile>(path.string(), "a datastore")), name_(path.string()) {
  parse(file_->image());
}

Datastore::Datastore(std::string name, std::span<const std::byte> image) : name_(std::move(name)) {
  parse(image);
}

void Datastore::parse(std::span<const std::byte> image) {
  const auto refuse = [&](const std::string& why) {
    throw Error("{}: {}; build it with `coppice datastore build`", name_, why);
  };
  Header header;
  const Header expected;
  if (image.size() < sizeof header) refuse("too short for a datastore");
  std::memcpy(&header, image.data(), sizeof header);
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0) {
    refuse("this is no datastore");
  }
  if (header.version != kVersion) {
    refuse(fmt::format("datastore version {}, this program reads {}", header.version, kVersion));
  }
  if (header.tokens == 0 || header.tokens > kMostTokens || header.vocabulary == 0 ||
      header.vocabulary > static_cast<uint32_t>(INT32_MAX)) {
    refuse(fmt::format("{} tokens of a vocabulary of {}", header.tokens, header.vocabulary));
  }
  const size_t bytes = sizeof header + 8 * static_cast<size_t>(header.tokens);
  if (image.size() != bytes) {
    refuse(fmt::format("{} bytes where {} tokens take {}: the file was cut or damaged",
                       image.size(), header.tokens, bytes));
  }
  const std::span<const std::byte> body = image.subspan(sizeof header);
  if (datastore_checksum(body) != header.checksum)
    refuse("its checksum does not match: the file is damaged");
  tokens_ = {reinterpret_cast<const int32_t*>(body.data()), static_cast<size_t>(header.tokens)};
  suffixes_ = {reinterpret_cast<const uint32_t*>(body.data() + tokens_.size_bytes()),
               tokens_.size()};
  vocabulary_ = static_cast<int>(header.vocabulary);
  tokenizer_ = header.tokenizer;
  for (int32_t token : tokens_) {
    if (token < kEnd || token >= vocabulary_) {
      refuse(fmt::format("token {} is outside the vocabulary of {}", token, vocabulary_));
    }
  }
  for (uint32_t suffix : suffixes_) {
    if (suffix >= tokens_.size()) refuse(fmt::format("suffix {} is outside the text", suffix));
  }
}

Datastore::Range Datastore::narrow(Range range, int depth, int32_t wanted) const {
  const auto first_not = [&](size_t first, auto before) {
    size_t count = range.last - first;
    while (count > 0) {
      const size_t half = count / 2;
      if (before(token(first + half, depth))) {
        first += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return first;
  };
  const size_t first = first_not(range.first, [&](int32_t token) { return token < wanted; });
  return {first, first_not(first, [&](int32_t token) { return token <= wanted; })};
}

Datastore::Range Datastore::find(std::span<const int32_t> context) const {
  COPPICE_CHECK(context.size() <= static_cast<size_t>(kSortedTokens));
  Range range = {0, suffixes_.size()};
  for (size_t depth = 0; depth < context.size() && range.size() > 0; ++depth) {
    range = narrow(range, static_cast<int>(depth), context[depth]);
  }
  return range;
}

void write_datastore(const std::filesystem::path& path, std::span<const int32_t> tokens,
                     const Vocabulary& vocabulary, const std::function<void(size_t)>& on_progress) {
  COPPICE_CHECK(!tokens.empty() && tokens.size() <= Datastore::kMostTokens);
  COPPICE_CHECK(tokens.back() == Datastore::kEnd);
  // Buckets by the first token, kEnd in front; then each bucket by the tokens that follow.
  std::vector<size_t> bucket_end(vocabulary.tokens.size() + 2);
  for (int32_t token : tokens) ++bucket_end[static_cast<size_t>(token + 2)];
  std::partial_sum(bucket_end.begin(), bucket_end.end(), bucket_end.begin());
  std::vector<uint32_t> suffixes(tokens.size());
  for (size_t at = 0; at < tokens.size(); ++at) {
    suffixes[bucket_end[static_cast<size_t>(tokens[at] + 1)]++] = static_cast<uint32_t>(at);
  }
  const auto before = [&](uint32_t a, uint32_t b) {
    for (uint32_t i = 1; i < Datastore::kSortedTokens; ++i) {
      const int32_t left = tokens[a + i], right = tokens[b + i];
      if (left != right) return left < right;
      if (left == Datastore::kEnd) break;  // the last one ends the whole text, too
    }
    return a < b;
  };
  size_t first = bucket_end[0];  // what begins with kEnd is never looked for
  for (size_t bucket = 1; bucket + 1 < bucket_end.size(); ++bucket) {
    const size_t last = bucket_end[bucket];
    std::sort(suffixes.begin() + static_cast<long>(first),
              suffixes.begin() + static_cast<long>(last), before);
    if (on_progress && last > first) on_progress(last);
    first = last;
  }

  Header header;
  header.vocabulary = static_cast<uint32_t>(vocabulary.tokens.size());
  header.tokenizer = tokenizer_fingerprint(vocabulary);
  header.tokens = tokens.size();
  Checksum sum;
  sum.add(std::as_bytes(tokens));
  sum.add(std::as_bytes(std::span(suffixes)));
  header.checksum = sum.value();
  const std::string part = path.string() + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  const auto write = [&](const void* data, size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  };
  write(&header, sizeof header);
  write(tokens.data(), tokens.size_bytes());
  write(suffixes.data(), 4 * suffixes.size());
  out.close();
  std::error_code failed;
  if (out) std::filesystem::rename(part, path, failed);
  if (!out || failed) {
    const std::string reason = failed ? failed.message() : std::strerror(errno);
    std::filesystem::remove(part, failed);
    throw Failure("{}: cannot write the datastore: {}", path.string(), reason);
  }
}

}  // namespace coppice
