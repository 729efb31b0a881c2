// Streams the file through OpenSSL's digest, a block at a time.
// Source: EVP_DigestInit(3).
//
//   sha256_of("empty");  // e3b0c44298fc1c149afbf4c8996fb924...
#include "core/file_hash.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/base/error.h"

namespace coppice {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};

/// A digest under way.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
      throw Failure("SHA-256: OpenSSL does not have it; install libssl");
    }
  }
  void add(const void* bytes, size_t count) { EVP_DigestUpdate(context_.get(), bytes, count); }
  std::string hex() {
    std::array<unsigned char, 32> hash = {};
    EVP_DigestFinal_ex(context_.get(), hash.data(), nullptr);
    return fmt::format("{:02x}", fmt::join(hash, ""));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> context_;
};

}  // namespace

std::string sha256_of(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, Freed<std::fclose>> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw Error("{}: cannot open it: {}", path.string(), std::strerror(errno));
  Sha256 digest;
  std::vector<unsigned char> block(kBlockBytes);
  while (const size_t count = std::fread(block.data(), 1, block.size(), file.get())) {
    digest.add(block.data(), count);
  }
  if (std::ferror(file.get()) != 0) {
    throw Failure("{}: cannot read it: {}", path.string(), std::strerror(errno));
  }
  return digest.hex();
}

std::string sha256_of_text(std::string_view text) {
  Sha256 digest;
  digest.add(text.data(), text.size());
  return digest.hex();
}

}  // namespace coppice
