// One device: its memory, and a step on it as one graph. Alone it is the whole backend; group.h has
// several of them.
//
//   CudaBackend backend(/*exact=*/true);
//   backend.run(ops);                       // or, for all devices of a group alike:
//   backend.prepare(ops);  backend.finish();
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/branch.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/shared_memory.h"
#include "kernels/cuda/staging.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class CudaBackend final : public Backend {
 public:
  /// The device that this thread has chosen. `group` null: alone; else it outlives the object, and
  /// `shared` is what its first device allocates. Throws Error and Failure.
  explicit CudaBackend(bool exact, Communicator* group = nullptr,
                       std::shared_ptr<SharedMemory> shared = std::make_shared<SharedMemory>());
  ~CudaBackend() override;

  std::string describe() const override;
  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share share = Share::first) override;
  /// Managed memory: ops use it where it is, and so does the host between steps.
  Buffer allocate(size_t bytes) override;
  void run(std::span<const Op> ops) override;
  bool judges() const override { return true; }

  /// The two halves of run(): the list's memory is taken, and host memory read, in the first. `ops`
  /// stay where they are until the second has returned.
  void prepare(std::span<const Op> ops);
  void finish();

 private:
  int rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  bool follows() const { return rank() > 0; }
  void wait();
  void choose_own_weights();
  void place_own_memory();
  void reserve_scratch();
  void grow(DeviceBlock& scratch, size_t bytes);
  void launch_all();
  void fetch_next_weight(size_t after);
  void launch_one(const Op& op, const LaunchSite& site);

  cudaDeviceProp device_;
  int runtime_ = 0;
  bool exact_;
  std::shared_ptr<void> blas_;
  Communicator* group_;
  OwnStream stream_;
  Stream main_;
  Branch branch_;
  std::shared_ptr<SharedMemory> shared_;
  OwnMemory own_;
  Staging staging_;
  GraphCache graphs_;
  DeviceBlock scratch_, branch_scratch_;
  std::span<const Op> named_;   // the list as it came, whose tables the host can read
  std::vector<Op> ops_;         // with device addresses
  std::vector<bool> launched_;  // what a device that follows leaves out
  int most_keys_ = 0;
  bool under_way_ = false;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
