// The sum over ranks: gathered parts added in rank order, so that every rank has the same bits and
// a row's do not depend on the others.
//
//   launch(op, group, site);
#include "kernels/base/error.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kThreads = 256;

/// y = part 0 + part 1 + ..., and x += y where there is an x. Parts are (ranks, values).
__global__ void __launch_bounds__(kThreads)
    add_parts(const float* parts, int ranks, int values, float* y, float* x) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= values) return;
  float sum = parts[i];
  for (int rank = 1; rank < ranks; ++rank) sum += parts[static_cast<size_t>(rank) * values + i];
  y[i] = sum;
  if (x != nullptr) x[i] += sum;
}

}  // namespace

size_t scratch_bytes(const AllReduce& op, int ranks) {
  return sizeof(float) * ranks * op.rows * op.dim;
}

void launch(const AllReduce& op, Communicator* group, const LaunchSite& at) {
  const int values = op.rows * op.dim;
  if (values == 0) return;
  const float* parts = op.y;
  int ranks = 1;
  if (group != nullptr && at.exact) {
    auto* all = reinterpret_cast<float*>(at.scratch);
    group->all_gather(op.y, all, static_cast<size_t>(values), at.stream);
    parts = all;
    ranks = group->ranks();
  } else if (group != nullptr) {
    group->all_reduce(op.y, static_cast<size_t>(values), at.stream);
  }
  const LaunchShape shape{"add_parts", extent((values + kThreads - 1) / kThreads), extent(kThreads),
                          0, at.stream};
  launch<add_parts>(shape, parts, ranks, values, op.y, op.x);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
