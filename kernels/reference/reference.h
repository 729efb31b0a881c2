// The oracle backend: fp32 throughout, weights dequantised when packed, Eigen for the products.
// Every other backend is measured against it. Row-invariant as kernels/backend.h asks.
//
//   auto backend = make_backend({.name = "reference"});
#pragma once

#include "kernels/backend.h"

namespace coppice {

BackendEntry reference_entry();

}  // namespace coppice
