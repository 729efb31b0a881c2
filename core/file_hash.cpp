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

}  // namespace

std::string sha256_of(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, Freed<std::fclose>> file(std::fopen(path.c_str(), "rb"));
  if (!file) throw Error("{}: cannot open it: {}", path.string(), std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>> digest(EVP_MD_CTX_new());
  if (!digest || EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) != 1) {
    throw Failure("{}: cannot hash it: OpenSSL has no SHA-256", path.string());
  }
  std::vector<unsigned char> block(kBlockBytes);
  while (const size_t count = std::fread(block.data(), 1, block.size(), file.get())) {
    EVP_DigestUpdate(digest.get(), block.data(), count);
  }
  if (std::ferror(file.get()) != 0) {
    throw Failure("{}: cannot read it: {}", path.string(), std::strerror(errno));
  }
  std::array<unsigned char, 32> hash = {};
  EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr);
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

}  // namespace coppice
