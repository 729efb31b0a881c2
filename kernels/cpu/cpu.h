// The fast backend: weights stay as narrow as their file keeps them, activations are 8-bit, all
// threads walk the op list together. Row-invariant as kernels/backend.h asks.
//
//   auto backend = make_backend({.name = "cpu", .threads = 2});
#pragma once

#include "kernels/backend.h"

namespace coppice {

BackendEntry cpu_entry();

}  // namespace coppice
