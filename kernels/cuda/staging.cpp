// See staging.h.
#include "kernels/cuda/staging.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/fields.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr size_t kLeastRegion = 256;
constexpr size_t kRoomyRegion = 1 << 16;  // smaller regions get room to grow

/// Tables grow from step to step: with some room in each, the others keep their addresses, and a
/// graph that names these serves again.
size_t reserved(size_t bytes) {
  if (bytes < kRoomyRegion) return std::max(std::bit_ceil(bytes), kLeastRegion);
  return (bytes + kLeastRegion - 1) / kLeastRegion * kLeastRegion;
}

}  // namespace

PinnedBlock::PinnedBlock(size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "taking pinned host memory");
  data_ = static_cast<std::byte*>(data);
}
PinnedBlock::PinnedBlock(PinnedBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}
PinnedBlock& PinnedBlock::operator=(PinnedBlock&& other) noexcept {
  std::swap(data_, other.data_);
  return *this;
}
PinnedBlock::~PinnedBlock() {
  if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

struct Staging::Collector : MemoryVisitor<Staging::Collector> {
  explicit Collector(Staging& owner) : staging(owner) {}
  Staging& staging;

  template <class T, class Count>
  void memory(T* pointer, const Count& count, bool written) {
    const auto* begin = reinterpret_cast<const std::byte*>(pointer);
    if (pointer == nullptr || staging.shared_->find(begin) != nullptr) return;
    const size_t bytes = count() * sizeof(T);
    if (bytes > 0) staging.regions_.push_back({begin, begin + bytes, written, 0});
  }
};

struct Staging::Patcher : MemoryVisitor<Staging::Patcher> {
  explicit Patcher(Staging& owner) : staging(owner) {}
  Staging& staging;

  template <class T, class Count>
  void memory(T*& pointer, const Count&, bool) {
    const auto* host = reinterpret_cast<const std::byte*>(pointer);
    if (pointer == nullptr || staging.shared_->find(host) != nullptr) return;
    // Null where nothing is touched: a stray address would make every list a new one.
    pointer = reinterpret_cast<T*>(staging.device_address(host));
  }
};

/// Null for what is in no region.
std::byte* Staging::device_address(const std::byte* host) const {
  auto region = std::upper_bound(regions_.begin(), regions_.end(), host,
                                 [](const std::byte* p, const Region& r) { return p < r.begin; });
  if (region == regions_.begin() || host >= (--region)->end) return nullptr;
  return device_.data() + region->offset + (host - region->begin);
}

const Judge* Staging::resident(const Judge& op) const {
  return reinterpret_cast<const Judge*>(device_address(reinterpret_cast<const std::byte*>(&op)));
}

/// One region for operands that overlap: what one op writes, another may read.
void Staging::join() {
  std::sort(regions_.begin(), regions_.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  size_t joined = 0;
  for (const Region& region : regions_) {
    if (joined > 0 && region.begin < regions_[joined - 1].end) {
      regions_[joined - 1].end = std::max(regions_[joined - 1].end, region.end);
      regions_[joined - 1].written = regions_[joined - 1].written || region.written;
    } else {
      regions_[joined++] = region;
    }
  }
  regions_.resize(joined);
}

void Staging::place(std::span<Op> ops) {
  regions_.clear();
  Collector collector(*this);
  for (Op& op : ops) {
    visit_fields(op, collector);
    if (const auto* judge = std::get_if<Judge>(&op)) {
      collector.memory(
          judge, [] { return size_t{1}; }, false);
    }
  }
  join();
  size_t offset = 0;
  for (const bool written : {false, true}) {
    if (written) written_ = offset;
    for (Region& region : regions_) {
      if (region.written != written) continue;
      region.offset = offset;
      offset += reserved(static_cast<size_t>(region.end - region.begin));
    }
  }
  end_ = offset;
  if (offset > device_.bytes()) {
    const size_t bytes = std::bit_ceil(offset);
    shared_->note_change();
    device_ = DeviceBlock();
    device_ = DeviceBlock(bytes, "a step's tables");
    host_ = PinnedBlock(bytes);
  }
  Patcher patcher(*this);
  for (Op& op : ops) visit_fields(op, patcher);
}

void Staging::upload(Stream stream) {
  if (end_ == 0) return;
  for (const Region& region : regions_) {
    std::memcpy(host_.data() + region.offset, region.begin,
                static_cast<size_t>(region.end - region.begin));
  }
  check(cudaMemcpyAsync(device_.data(), host_.data(), end_, cudaMemcpyHostToDevice, stream),
        "copying a step's tables");
}

void Staging::download(Stream stream) {
  if (!has_results()) return;
  check(cudaMemcpyAsync(host_.data() + written_, device_.data() + written_, end_ - written_,
                        cudaMemcpyDeviceToHost, stream),
        "copying a step's results");
}

void Staging::hand_out() {
  for (const Region& region : regions_) {
    if (!region.written) continue;
    std::memcpy(const_cast<std::byte*>(region.begin), host_.data() + region.offset,
                static_cast<size_t>(region.end - region.begin));
  }
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
