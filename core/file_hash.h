// SHA-256 of a file, for manifests and for the pinned model.
// Source: FIPS 180-4, by OpenSSL.
//
//   manifest["model"]["sha256"] = sha256_of("model.gguf");
#pragma once

#include <filesystem>
#include <string>

namespace coppice {

/// 64 lower-case hexadecimal digits. Error when the file cannot be opened, Failure when reading
/// fails half-way.
std::string sha256_of(const std::filesystem::path& path);

}  // namespace coppice
