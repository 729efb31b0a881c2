// The CUDA backend behind kernels/backend.h: the device, its memory, and the step as one graph.
// staging.h brings in what ops name on the host, kernels.h has the launches.
//
//   make_backend({.name = "cuda", .target = "exact"})
#include <algorithm>
#include <bit>

#include "kernels/base/error.h"
#include "kernels/cuda/branch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/staging.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

#if defined(__CUDACC__)
constexpr std::string_view kName = "cuda";
#else
constexpr std::string_view kName = "cuda_emulated";
#endif
constexpr std::string_view kExact = "exact", kFast = "fast";
constexpr int kLeastMajor = 8;      // sm_80: bf16 and int8 mma, asynchronous copies
constexpr size_t kMostGraphs = 64;  // about a megabyte of device memory each
constexpr int kLeastKeys = 256;

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// The device that this thread has chosen, else the first. Throws Error, one line, where it is none
/// that this build can use.
cudaDeviceProp usable_device() {
  int driver = 0, runtime = 0, count = 0;
  check(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  if (driver == 0) {
    throw Error("backend {}: no NVIDIA driver is installed; install one, or use --backend cpu",
                kName);
  }
  if (driver / 1000 < runtime / 1000) {
    throw Error("backend {}: the driver knows CUDA {}, this build needs {}; update the driver",
                kName, version_text(driver), version_text(runtime));
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw Error("backend {}: the driver finds no device; use --backend cpu", kName);
  }
  check(status, "counting devices");
  int chosen = 0;
  cudaDeviceProp device;
  check(cudaGetDevice(&chosen), "asking which device is chosen");
  check(cudaGetDeviceProperties(&device, chosen), "asking for the device's properties");
  if (device.major < kLeastMajor) {
    throw Error("backend {}: {} has compute capability {}.{}; this needs {}.0 or later", kName,
                device.name, device.major, device.minor, kLeastMajor);
  }
  if (device.managedMemory == 0) {
    throw Error("backend {}: {} has no managed memory; use --backend cpu", kName, device.name);
  }
  return device;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(bool exact, std::unique_ptr<Communicator> group)
      : device_(usable_device()),
        exact_(exact),
        group_(std::move(group)),
        shared_(std::make_shared<SharedMemory>()),
        staging_(shared_) {
    check(cudaRuntimeGetVersion(&runtime_), "asking for the runtime's version");
    main_ = {stream_.get(), can_start_early()};
  }
  ~CudaBackend() override { static_cast<void>(cudaStreamSynchronize(main_)); }

  std::string describe() const override {
    std::string text =
        fmt::format("{} {}, {} (sm_{}{}), CUDA {}", kName, exact_ ? kExact : kFast, device_.name,
                    device_.major, device_.minor, version_text(runtime_));
    if (group_) text += fmt::format(", rank {} of {}", group_->rank(), group_->ranks());
    return text;
  }

  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking) override {
    return pack_weight(parts, stacking);
  }

  /// Managed memory: ops use it where it is, and so does the host between steps.
  Buffer allocate(size_t bytes) override {
    const size_t size = std::max<size_t>(bytes, 1);
    void* data = nullptr;
    const cudaError_t status = cudaMallocManaged(&data, size, cudaMemAttachGlobal);
    if (status == cudaErrorMemoryAllocation) {
      throw Failure(
          "cuda: no room for {:.1f} MB of activations and cache; use a shorter context or fewer "
          "sequences",
          bytes / 1e6);
    }
    check(status, "taking managed memory");
    std::shared_ptr<std::byte> owner(static_cast<std::byte*>(data),
                                     [shared = shared_](std::byte* memory) {
                                       shared->erase(reinterpret_cast<uintptr_t>(memory));
                                       static_cast<void>(cudaFree(memory));
                                     });
    shared_->emplace(reinterpret_cast<uintptr_t>(data), size);
    check(cudaMemsetAsync(data, 0, size, main_), "clearing memory");
    wait();
    return {std::move(owner), bytes};
  }

  void run(std::span<const Op> ops) override {
    if (under_way_) wait();  // the tables of the moves before are still being read
    if (ops.empty()) return;
    ops_.assign(ops.begin(), ops.end());
    const int most_keys = round_keys(ops);
    staging_.place(ops_);
    reserve_scratch(most_keys);
    staging_.upload(main_);
    const uint64_t salt = reinterpret_cast<uintptr_t>(scratch_.data()) ^
                          std::rotl(reinterpret_cast<uintptr_t>(branch_scratch_.data()), 24) ^
                          uint64_t(most_keys) << 48;
    graphs_.run(ops_, salt, main_, [&] { launch_all(ops, most_keys); });
    staging_.download(main_);
    under_way_ = true;
    // Nobody reads moved K and V on the host: the next step follows them on the stream.
    if (!staging_.has_results() && std::holds_alternative<MoveKv>(ops.back())) return;
    wait();
    staging_.hand_out();
  }

  bool judges() const override { return true; }

 private:
  void wait() {
    check(cudaStreamSynchronize(main_), "running a step");
    under_way_ = false;
  }

  /// A bound on the keys of every row, coarse, so that steps share a graph.
  static int round_keys(std::span<const Op> ops) {
    int most = 0;
    for (const Op& op : ops) {
      const auto* attention = std::get_if<Attention>(&op);
      if (attention == nullptr) continue;
      for (int r = 0; r < attention->rows; ++r) {
        most = std::max(most, attention->row[r].position + 1);
      }
    }
    if (most == 0) return 0;
    return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(std::max(most, kLeastKeys))));
  }

  void reserve_scratch(int most_keys) {
    size_t bytes = 0, beside = 0;
    for (const Op& op : ops_) {
      if (const auto* linear = std::get_if<Linear>(&op)) {
        bytes = std::max(bytes, scratch_bytes(*linear, exact_));
      } else if (const auto* attention = std::get_if<Attention>(&op)) {
        bytes = std::max(bytes, scratch_bytes(*attention, most_keys));
      } else if (const auto* top = std::get_if<TopK>(&op)) {
        beside = std::max(beside, scratch_bytes(*top));
        bytes = std::max(bytes, beside);
      } else if (const auto* judged = std::get_if<Judge>(&op)) {
        bytes = std::max(bytes, scratch_bytes(*judged));
      } else if (const auto* sum = std::get_if<AllReduce>(&op)) {
        bytes = std::max(bytes, scratch_bytes(*sum, group_ ? group_->ranks() : 1));
      }
    }
    grow(scratch_, bytes);
    grow(branch_scratch_, beside);
  }
  static void grow(DeviceBlock& scratch, size_t bytes) {
    if (bytes <= scratch.bytes()) return;
    scratch = DeviceBlock();
    scratch = DeviceBlock(std::bit_ceil(bytes), "scratch");
  }

  /// `named`: the ops as they came, whose tables the host can read.
  void launch_all(std::span<const Op> named, int most_keys) {
    branch_.drop();
    for (size_t i = 0; i < ops_.size(); ++i) {
      LaunchSite site{
          .stream = main_, .scratch = scratch_.data(), .exact = exact_, .blas = blas_.get()};
      site.stream.early = site.stream.early && i > 0;  // before the first stands a copy
      const bool beside = Branch::takes(named[i], named.subspan(i + 1));
      if (beside) {
        branch_.fork(main_);
        site.stream = branch_.stream();
        site.scratch = branch_scratch_.data();
      } else if (branch_.blocks(named[i])) {
        branch_.join(main_);
        site.stream.early = false;  // it follows two streams
      }
      if (group_ && std::holds_alternative<AllReduce>(named[i])) fetch_next_weight(i);
      launch_one(ops_[i], most_keys, site);
      if (beside) branch_.add(named[i]);
    }
    if (branch_.is_open()) branch_.join(main_);
  }

  /// The sum over ranks leaves the memory idle: the product behind it finds its first weights near.
  void fetch_next_weight(size_t after) {
    for (size_t i = after + 1; i < ops_.size(); ++i) {
      const auto* next = std::get_if<Linear>(&ops_[i]);
      if (next == nullptr) continue;
      branch_.fork(main_);
      fetch_ahead(*next->weight, branch_.stream());
      return;
    }
  }

  void launch_one(const Op& op, int most_keys, const LaunchSite& site) {
    std::visit(
        [&](const auto& each) {
          using Each = std::decay_t<decltype(each)>;
          if constexpr (std::is_same_v<Each, Attention>) {
            launch(each, most_keys, site);
          } else if constexpr (std::is_same_v<Each, Judge>) {
            launch(each, staging_.resident(each), site);
          } else if constexpr (std::is_same_v<Each, AllReduce>) {
            launch(each, group_.get(), site);
          } else {
            launch(each, site);
          }
        },
        op);
  }

  cudaDeviceProp device_;
  int runtime_ = 0;
  bool exact_;
  std::shared_ptr<void> blas_ = exact_ ? nullptr : make_blas();
  std::unique_ptr<Communicator> group_;  // null: one device
  OwnStream stream_;
  Stream main_;
  Branch branch_;
  std::shared_ptr<SharedMemory> shared_;
  Staging staging_;
  GraphCache graphs_{kMostGraphs};
  DeviceBlock scratch_, branch_scratch_;
  std::vector<Op> ops_;  // with device addresses
  bool under_way_ = false;
};

/// Nothing where no device can be used: `make` then says why.
std::vector<std::string_view> usable_targets() {
  try {
    usable_device();
    return {kExact, kFast};
  } catch (const std::runtime_error&) {
    return {};
  }
}

std::unique_ptr<Backend> make(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options.target != kFast, nullptr);
}

BackendEntry entry() {
  return {kName, "NVIDIA GPUs: weights stay quantised, a step is one graph", usable_targets, make};
}

}  // namespace

std::unique_ptr<Backend> make_parallel_cuda(const BackendOptions& options,
                                            std::unique_ptr<Communicator> group) {
  return std::make_unique<CudaBackend>(options.target != kFast, std::move(group));
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

namespace coppice {

#if defined(__CUDACC__)
BackendEntry cuda_entry() {
  return cuda::entry();
}
#else
BackendEntry emulated_cuda_entry() {
  return cuda::entry();
}
#endif

}  // namespace coppice
