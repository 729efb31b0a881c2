// See branch.h.
#include "kernels/cuda/branch.h"

#include <algorithm>

#include "kernels/cuda/fields.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct Branch::Collector : MemoryVisitor<Branch::Collector> {
  explicit Collector(std::vector<Region>& found) : regions(found) {}
  std::vector<Region>& regions;

  template <class T, class Count>
  void memory(T* pointer, const Count& count, bool written) {
    if (pointer == nullptr) return;
    const auto* begin = reinterpret_cast<const std::byte*>(pointer);
    regions.push_back({begin, begin + count() * sizeof(T), written});
  }
};

Branch::Branch() {
  check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming), "making an event");
  const cudaError_t status = cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming);
  if (status != cudaSuccess) static_cast<void>(cudaEventDestroy(forked_));
  check(status, "making an event");
}
Branch::~Branch() {
  static_cast<void>(cudaEventDestroy(forked_));
  static_cast<void>(cudaEventDestroy(joined_));
}

std::vector<Branch::Region> Branch::regions_of(const Op& op) {
  std::vector<Region> regions;
  Collector collector(regions);
  Op own = op;
  visit_fields(own, collector);
  return regions;
}

void Branch::fork(Stream main) {
  check(cudaEventRecord(forked_, main), "marking a place in a step");
  check(cudaStreamWaitEvent(stream_.get(), forked_, 0), "branching off a step");
  open_ = true;
}

void Branch::add(const Op& op) {
  const std::vector<Region> own = regions_of(op);
  touched_.insert(touched_.end(), own.begin(), own.end());
}

bool Branch::clash(std::span<const Region> some, std::span<const Region> others) {
  return std::any_of(some.begin(), some.end(), [&](const Region& a) {
    return std::any_of(others.begin(), others.end(), [&](const Region& b) {
      return (a.written || b.written) && a.begin < b.end && b.begin < a.end;
    });
  });
}

bool Branch::takes(const Op& op, std::span<const Op> later) {
  if (!std::holds_alternative<Copy>(op) && !std::holds_alternative<TopK>(op)) return false;
  std::vector<Region> results = regions_of(op);
  std::erase_if(results, [](const Region& region) { return !region.written; });
  return !later.empty() && std::none_of(later.begin(), later.end(), [&](const Op& other) {
    return clash(results, regions_of(other));
  });
}

bool Branch::blocks(const Op& op) const {
  return !touched_.empty() && clash(touched_, regions_of(op));
}

void Branch::join(Stream main) {
  check(cudaEventRecord(joined_, stream_.get()), "marking the end of a branch");
  check(cudaStreamWaitEvent(main, joined_, 0), "joining a branch");
  drop();
}

void Branch::drop() {
  open_ = false;
  touched_.clear();
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
