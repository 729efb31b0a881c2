// Where a failed check ends: it prints its place and stops the program.
#include "kernels/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace coppice {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace coppice
