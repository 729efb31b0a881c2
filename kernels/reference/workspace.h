// What the reference's ops share: threads, the arithmetic of the dispatch target, scratch memory
// that grows to the largest op seen and is then reused.
//
//   float* q = workspace.shared(rows * dim);
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/reference/arithmetic.h"
#include "kernels/reference/worker_pool.h"

namespace coppice::reference {

class Workspace {
 public:
  Workspace(int threads, const Arithmetic& target)
      : pool(threads), arithmetic(target), own_(static_cast<size_t>(pool.workers())) {}

  WorkerPool pool;
  const Arithmetic& arithmetic;

  /// Floats for the op at hand, shared by its tasks; the contents are left over from earlier ops.
  float* shared(size_t floats) { return grown(shared_, floats); }
  /// The same, for one worker's task at hand.
  float* own(int worker, size_t floats) { return grown(own_[worker].floats, floats); }
  int32_t* own_indices(int worker, size_t count) { return grown(own_[worker].indices, count); }

 private:
  struct Own {
    std::vector<float> floats;
    std::vector<int32_t> indices;
  };

  template <class T>
  static T* grown(std::vector<T>& memory, size_t count) {
    if (memory.size() < count) memory.resize(count);
    return memory.data();
  }

  std::vector<float> shared_;
  std::vector<Own> own_;
};

}  // namespace coppice::reference
