// See device.h.
#include "experiments/training/device.h"

#include <dlfcn.h>

#include "kernels/base/error.h"

namespace coppice {
namespace {

bool load(const char* library) {
  return ::dlopen(library, RTLD_NOW | RTLD_GLOBAL) != nullptr;
}

}  // namespace

at::Device training_device(std::string_view name) {
  if (name == "cpu") return at::kCPU;
  COPPICE_CHECK(name == "cuda");
  if (!load("libcuda.so.1")) {
    throw Error(
        "--device cuda: there is no NVIDIA driver on this machine; install it, or train on "
        "the cpu");
  }
  // Its kernels register themselves.
  if (!load("libtorch_cuda.so")) {
    throw Error(
        "--device cuda: this build's libtorch has no CUDA ({}); install PyPI's torch by `python3 "
        "-m "
        "venv DIR && DIR/bin/pip install torch`, configure with "
        "-DCOPPICE_TORCH=DIR/lib/python3.X/site-packages/torch and build again",
        ::dlerror());
  }
  if (!at::globalContext().hasCUDA()) {
    throw Error("--device cuda: the driver shows no device; see nvidia-smi");
  }
  return at::kCUDA;
}

}  // namespace coppice
