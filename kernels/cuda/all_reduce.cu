// The sum over ranks: gathered parts added in rank order, so that every rank has the same bits and
// a row's do not depend on the others. And what is done beside it: fetching the next weights.
//
//   launch(op, group, site);
#include "kernels/base/error.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/weights.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr int kThreads = 256;
constexpr size_t kLine = 128;                      // bytes of a cache line
constexpr size_t kMostFetched = size_t{16} << 20;  // well within the cache, and within a sum's time

/// y = part 0 + part 1 + ..., and x += y where there is an x. Parts are (ranks, values).
__global__ void __launch_bounds__(kThreads)
    add_parts(const float* parts, int ranks, int values, float* y, float* x) {
  follow_previous();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= values) return;
  float sum = parts[i];
  for (int rank = 1; rank < ranks; ++rank) sum += parts[static_cast<size_t>(rank) * values + i];
  y[i] = sum;
  if (x != nullptr) x[i] += sum;
}

__global__ void __launch_bounds__(kThreads) fetch_lines(const std::byte* data, int lines) {
  follow_previous();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < lines) prefetch_l2(data + static_cast<size_t>(i) * kLine);
}

}  // namespace

void fetch_ahead(const Weight& weight, Stream stream) {
  const auto* own = dynamic_cast<const PackedWeight*>(&weight);
  COPPICE_CHECK(own != nullptr);
  const size_t bytes = own->data.bytes() < kMostFetched ? own->data.bytes() : kMostFetched;
  const auto lines = static_cast<int>(bytes / kLine);
  if (lines == 0) return;
  launch<fetch_lines>({.name = "fetch_lines",
                       .grid = extent((lines + kThreads - 1) / kThreads),
                       .block = extent(kThreads),
                       .stream = stream},
                      static_cast<const std::byte*>(own->data.data()), lines);
}

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
  LaunchShape shape{"add_parts", extent((values + kThreads - 1) / kThreads), extent(kThreads), 0,
                    at.stream};
  shape.stream.early =
      shape.stream.early && group == nullptr;  // what stands before is no kernel of ours
  launch<add_parts>(shape, parts, ranks, values, op.y, op.x);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
