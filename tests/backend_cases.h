// The backends that kernel tests run on: every entry of backends() with every dispatch target that
// this machine can use, and how far each may be from exact arithmetic. The same tests, compiled
// with COPPICE_EMULATED_CUDA, run on the CUDA backend's kernels in emulation instead.
//
//   class KernelTest : public BackendTest {};
//   COPPICE_FOR_EACH_BACKEND(KernelTest);
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#if defined(COPPICE_EMULATED_CUDA)
#include "kernels/cuda/cuda.h"
#endif

namespace coppice::test {

inline std::vector<BackendEntry> tested_backends() {
#if defined(COPPICE_EMULATED_CUDA)
  return {emulated_cuda_entry()};
#else
  return {backends().begin(), backends().end()};
#endif
}

struct BackendCase {
  std::string backend;
  std::string target;
  friend void PrintTo(const BackendCase& c, std::ostream* out) {
    *out << c.backend << ' ' << c.target;
  }
};

inline std::vector<BackendCase> backend_cases() {
  std::vector<BackendCase> cases;
  for (const BackendEntry& entry : tested_backends()) {
    for (std::string_view target : entry.targets()) {
      // In emulation there is no cuBLAS, which is all that `fast` changes.
      if (entry.name == "cuda_emulated" && target == "fast") continue;
      cases.push_back({std::string(entry.name), std::string(target)});
    }
  }
  return cases;
}

struct Precision {
  double rounding;             // error of a sum, relative to the sum of its terms' sizes
  bool quantises_activations;  // Linear reads x rounded to 8 bits, one scale per 32 values
};

inline Precision precision_of(const std::string& backend) {
  if (backend == "reference") return {1e-5, false};
  if (backend == "cpu") return {1e-5, true};
  // A float activation is the sum of two bf16 numbers, and so is an f32 weight.
  if (backend == "cuda" || backend == "cuda_emulated") return {3e-5, true};
  throw Failure("tests/backend_cases.h: state the precision of backend '{}'", backend);
}

class BackendTest : public testing::TestWithParam<BackendCase> {
 protected:
  std::unique_ptr<Backend> make(int threads = 2) const {
    for (const BackendEntry& entry : tested_backends()) {
      if (entry.name == GetParam().backend) {
        return entry.make({GetParam().backend, threads, GetParam().target});
      }
    }
    throw Failure("backend '{}' is gone", GetParam().backend);
  }
  Precision precision() const { return precision_of(GetParam().backend); }
};

}  // namespace coppice::test

#define COPPICE_FOR_EACH_BACKEND(suite)                              \
  INSTANTIATE_TEST_SUITE_P(                                          \
      All, suite, testing::ValuesIn(coppice::test::backend_cases()), \
      [](const auto& each) { return each.param.backend + "_" + each.param.target; })
