// Errors that end a command, and checks for mistakes only a programmer can make.
//
//   throw Error("model.gguf: tensor 'output.weight' ends past the file's end; fetch the file
//   again");
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/base/check.h"

namespace coppice {

/// What the user can mend: a file, a flag, a config. One line that names the place and the remedy.
/// The program prints it and exits with code 2.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

/// What the world did: a full disk, a lost file, a result that cannot be. Exit code 1.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  template <class... Args>
  explicit Failure(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

}  // namespace coppice
