// How the ranks of a tensor-parallel group give each other their partial sums. One rank a process
// and device (or, in tests, a thread and an emulated device); all call alike, in the same order.
//
//   auto group = nccl_communicator({.rank = 0, .ranks = 2, .meeting = "/tmp/coppice-group"});
//   auto backend = make_parallel_cuda({.target = "exact"}, std::move(group));
#pragma once

#include <filesystem>
#include <memory>

#include "kernels/cuda/runtime.h"

namespace coppice {
struct BackendOptions;
class Backend;
}  // namespace coppice

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// all[r * count ..] = rank r's own[0..count), in device memory, when the stream comes there.
  virtual void all_gather(const float* own, float* all, size_t count, Stream stream) = 0;
  /// own = the sum over ranks, in whatever order is fastest.
  virtual void all_reduce(float* own, size_t count, Stream stream) = 0;
};

struct GroupOptions {
  int rank = 0;
  int ranks = 1;
  std::filesystem::path meeting;  // a file in a folder that all ranks see; rank 0 writes it
};
/// Waits until every rank is there. Throws Error in a build without NCCL, and Failure.
std::unique_ptr<Communicator> nccl_communicator(const GroupOptions& options);

/// A backend whose AllReduce sums over the group: `exact` in rank order, the same bits on every
/// rank and for any number of rows; `fast` as NCCL does. Its model is a core/shard.h.
std::unique_ptr<Backend> make_parallel_cuda(const BackendOptions& options,
                                            std::unique_ptr<Communicator> group);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
