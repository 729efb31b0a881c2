// SHA-256 of a file or a text: for manifests, the pinned model, the cells of a sweep.
// Source: FIPS 180-4, by OpenSSL.
//
//   manifest["model"]["sha256"] = sha256_of("model.gguf");
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace coppice {

/// 64 lower-case hexadecimal digits. Error when the file cannot be opened, Failure when reading
/// fails half-way.
std::string sha256_of(const std::filesystem::path& path);
std::string sha256_of_text(std::string_view text);

}  // namespace coppice
