// Where libtorch computes. Its CUDA part is a library of its own that is loaded when it is asked
// for.
//
//   at::Device device = training_device("cuda");
#pragma once

#include <ATen/ATen.h>

#include <string_view>

namespace coppice {

/// "cpu" or "cuda". Throws Error saying what to install when there is no such device here.
at::Device training_device(std::string_view name);

}  // namespace coppice
