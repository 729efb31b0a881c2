// How the devices of a group give each other their partial sums: each has a communicator that its
// own thread calls, all alike and in the same order.
//
//   auto group = make_group(/*exact=*/true, nccl_communicators(4));
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class Communicator {
 public:
  Communicator(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// all[r * count ..] = rank r's own[0..count), in device memory, when the stream comes there.
  virtual void all_gather(const float* own, float* all, size_t count, Stream stream) = 0;
  /// own = the sum over ranks, in whatever order is fastest.
  virtual void all_reduce(float* own, size_t count, Stream stream) = 0;
  /// Waits for all that is on the stream. Throws Failure where another rank has left, whose part
  /// will never come.
  virtual void wait(Stream stream) = 0;
  /// This rank has failed and takes part no more.
  virtual void leave() = 0;

 private:
  int rank_, ranks_;
};
using Communicators = std::vector<std::unique_ptr<Communicator>>;  // one a device, in order

/// Over NCCL, for devices 0..ranks-1 of this process. Throws Error in a build without NCCL, and
/// Failure.
Communicators nccl_communicators(int ranks);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
