// A library of the toolkit that is loaded when it is first used: cuBLAS and NCCL are hundreds of
// megabytes, and most runs of the program need neither.
//
//   const Library nccl("libnccl.so.2");
//   const auto get_id = nccl.find<decltype(&ncclGetUniqueId)>("ncclGetUniqueId");
#pragma once

#include <dlfcn.h>

#include <string>

#include "kernels/base/error.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class Library {
 public:
  /// Stays loaded to the end of the process. Throws Failure where it is not found.
  explicit Library(std::string name) : name_(std::move(name)) {
    handle_ = dlopen(name_.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handle_ == nullptr) {
      throw Failure("cuda: {} cannot be loaded; put its folder into LD_LIBRARY_PATH", name_);
    }
  }
  template <class Function>
  Function find(const char* symbol) const {
    void* const found = dlsym(handle_, symbol);
    if (found == nullptr) throw Failure("cuda: {} has no {}", name_, symbol);
    return reinterpret_cast<Function>(found);
  }

 private:
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

/// A member of the name `field` that is the function `symbol` of the member `library`.
#define COPPICE_LIBRARY_FUNCTION(field, symbol) \
  decltype(&symbol) field = library.find<decltype(&symbol)>(#symbol)
