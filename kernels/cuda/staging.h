// Brings host memory that ops name to the device and back: a step's tables in one copy, what the
// host will read in another. Memory that the backend allocated is used where it is.
//
//   staging.place(ops);                 // ops now name device memory
//   staging.upload(stream);  ...launch...  staging.download(stream);  wait;  staging.hand_out();
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/shared_memory.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// Host memory that the device can copy from and to without another copy.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  explicit PinnedBlock(size_t bytes);
  PinnedBlock(PinnedBlock&& other) noexcept;
  PinnedBlock& operator=(PinnedBlock&& other) noexcept;
  ~PinnedBlock();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

class Staging {
 public:
  explicit Staging(std::shared_ptr<SharedMemory> shared) : shared_(std::move(shared)) {}

  /// Finds the host memory that the ops touch and puts device addresses in its place. Nothing of an
  /// earlier list may be under way. The ops stay where they are until the upload.
  void place(std::span<Op> ops);
  /// Where the copy of a Judge among the placed ops is.
  const Judge* resident(const Judge& op) const;
  void upload(Stream stream);
  void download(Stream stream);
  /// After the download has ended: writes the results where the ops named them.
  void hand_out();
  /// The host has results to wait for.
  bool has_results() const { return end_ > written_; }

 private:
  /// Host memory from `begin` to `end`, overlapping operands joined.
  struct Region {
    const std::byte *begin, *end;
    bool written;
    size_t offset;
  };
  struct Collector;
  struct Patcher;

  void join();
  std::byte* device_address(const std::byte* host) const;

  std::shared_ptr<SharedMemory> shared_;
  std::vector<Region> regions_;
  size_t written_ = 0, end_ = 0;  // offsets: regions that ops write come last
  PinnedBlock host_;
  DeviceBlock device_;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
