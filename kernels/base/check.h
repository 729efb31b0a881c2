// A check for mistakes that only a programmer can make, in every build. Apart from error.h so that
// device code, whose compiler does not take fmt, has it too.
#pragma once

namespace coppice {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace coppice

/// A condition that only a programmer can break. Prints the place and aborts, in every build.
#define COPPICE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::coppice::check_failed(#condition, __FILE__, __LINE__))
