// See cuda_backend.h. staging.h brings in what ops name on the host, kernels.h has the launches.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <bit>

#include "kernels/base/error.h"
#include "kernels/cuda/group.h"
#include "kernels/cuda/usable_device.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

constexpr size_t kMostGraphs = 64;  // about a megabyte of device memory each
constexpr int kLeastKeys = 256;

/// A bound on the keys of every row, coarse, so that steps share a graph.
int round_keys(std::span<const Op> ops) {
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

}  // namespace

CudaBackend::CudaBackend(bool exact, Communicator* group, std::shared_ptr<SharedMemory> shared)
    : device_(usable_device()),
      exact_(exact),
      blas_(exact ? nullptr : make_blas()),
      group_(group),
      shared_(std::move(shared)),
      own_(shared_),
      staging_(shared_),
      graphs_(kMostGraphs) {
  check(cudaRuntimeGetVersion(&runtime_), "asking for the runtime's version");
  main_ = {stream_.get(), can_start_early()};
}

CudaBackend::~CudaBackend() {
  static_cast<void>(cudaStreamSynchronize(main_));
}

std::string CudaBackend::describe() const {
  return fmt::format("{} {}, {} (sm_{}{}), CUDA {}", kName, exact_ ? kExact : kFast, device_.name,
                     device_.major, device_.minor, version_text(runtime_));
}

std::unique_ptr<Weight> CudaBackend::pack(std::span<const TensorView> parts, Stacking stacking,
                                          Share) {
  return pack_weight(parts, stacking);
}

Buffer CudaBackend::allocate(size_t bytes) {
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
                                     shared->remove(memory);
                                     static_cast<void>(cudaFree(memory));
                                   });
  shared_->add(owner.get(), size);
  check(cudaMemsetAsync(data, 0, size, main_), "clearing memory");
  wait();
  return {std::move(owner), bytes};
}

void CudaBackend::run(std::span<const Op> ops) {
  prepare(ops);
  finish();
}

void CudaBackend::prepare(std::span<const Op> ops) {
  if (under_way_) wait();  // the tables of the moves before are still being read
  named_ = ops;
  ops_.assign(ops.begin(), ops.end());
  most_keys_ = round_keys(ops);
  launched_.assign(ops.size(), true);
  if (group_ != nullptr) choose_own_weights();
  staging_.place(ops_);
  if (follows()) place_own_memory();
  reserve_scratch();
  staging_.upload(main_);
}

void CudaBackend::finish() {
  if (ops_.empty()) return;
  const uint64_t removals = group_ != nullptr ? shared_->removals() : 0;
  const uint64_t salt = (shared_->changes() + removals) << 32 | static_cast<uint32_t>(most_keys_);
  graphs_.run(ops_, salt, main_, [&] { launch_all(); });
  if (!follows()) staging_.download(main_);
  under_way_ = true;
  // Nobody reads moved K and V on the host: the next step follows them on the stream.
  if (!staging_.has_results() && std::holds_alternative<MoveKv>(named_.back())) return;
  wait();
  if (!follows()) staging_.hand_out();
}

void CudaBackend::wait() {
  if (group_ != nullptr) {
    group_->wait(main_);
  } else {
    check(cudaStreamSynchronize(main_), "running a step");
  }
  under_way_ = false;
}

void CudaBackend::choose_own_weights() {
  for (Op& op : ops_) {
    if (auto* embed = std::get_if<Embed>(&op)) {
      embed->table = &own_part(*embed->table, rank());
    } else if (auto* linear = std::get_if<Linear>(&op)) {
      const Weight& whole = *linear->weight;
      linear->weight = &own_part(whole, rank());
      if (linear->bias != nullptr && is_shared_by_rows(whole)) {
        linear->bias += static_cast<ptrdiff_t>(rank()) * whole.outputs;
      }
    }
  }
}

/// What a device does that follows: all up to the list's last sum, and moves in its own cache.
void CudaBackend::place_own_memory() {
  own_.drop_removed();
  const auto last_sum = std::find_if(ops_.rbegin(), ops_.rend(), [](const Op& op) {
    return std::holds_alternative<AllReduce>(op);
  });
  const auto needed = static_cast<size_t>(ops_.rend() - last_sum);
  own_.place(std::span(ops_).first(needed), main_);
  for (size_t i = needed; i < ops_.size(); ++i) {
    const auto* move = std::get_if<MoveKv>(&ops_[i]);
    launched_[i] = move != nullptr && own_.stands_for(move->kv.base);
    if (launched_[i]) own_.place({&ops_[i], 1}, main_);
  }
}

void CudaBackend::reserve_scratch() {
  size_t bytes = 0, beside = 0;
  for (const Op& op : ops_) {
    if (const auto* linear = std::get_if<Linear>(&op)) {
      bytes = std::max(bytes, scratch_bytes(*linear, exact_));
    } else if (const auto* attention = std::get_if<Attention>(&op)) {
      bytes = std::max(bytes, scratch_bytes(*attention, most_keys_));
    } else if (const auto* top = std::get_if<TopK>(&op)) {
      beside = std::max(beside, scratch_bytes(*top));
      bytes = std::max(bytes, beside);
    } else if (const auto* judged = std::get_if<Judge>(&op)) {
      bytes = std::max(bytes, scratch_bytes(*judged));
    } else if (const auto* sum = std::get_if<AllReduce>(&op)) {
      bytes = std::max(bytes, scratch_bytes(*sum, group_ != nullptr ? group_->ranks() : 1));
    }
  }
  grow(scratch_, bytes);
  grow(branch_scratch_, beside);
}

void CudaBackend::grow(DeviceBlock& scratch, size_t bytes) {
  if (bytes <= scratch.bytes()) return;
  shared_->note_change();
  scratch = DeviceBlock();
  scratch = DeviceBlock(std::bit_ceil(bytes), "scratch");
}

void CudaBackend::launch_all() {
  branch_.drop();
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (!launched_[i]) continue;
    LaunchSite site{
        .stream = main_, .scratch = scratch_.data(), .exact = exact_, .blas = blas_.get()};
    site.stream.early = site.stream.early && i > 0;  // before the first stands a copy
    const bool beside = Branch::takes(named_[i], named_.subspan(i + 1));
    if (beside) {
      branch_.fork(main_);
      site.stream = branch_.stream();
      site.scratch = branch_scratch_.data();
    } else if (branch_.blocks(named_[i])) {
      branch_.join(main_);
      site.stream.early = false;  // it follows two streams
    }
    if (group_ != nullptr && std::holds_alternative<AllReduce>(named_[i])) fetch_next_weight(i);
    launch_one(ops_[i], site);
    if (beside) branch_.add(named_[i]);
  }
  if (branch_.is_open()) branch_.join(main_);
}

/// The sum over ranks leaves the memory idle: the product behind it finds its first weights near.
void CudaBackend::fetch_next_weight(size_t after) {
  for (size_t i = after + 1; i < ops_.size() && launched_[i]; ++i) {
    const auto* next = std::get_if<Linear>(&ops_[i]);
    if (next == nullptr) continue;
    branch_.fork(main_);
    fetch_ahead(*next->weight, branch_.stream());
    return;
  }
}

void CudaBackend::launch_one(const Op& op, const LaunchSite& site) {
  std::visit(
      [&](const auto& each) {
        using Each = std::decay_t<decltype(each)>;
        if constexpr (std::is_same_v<Each, Attention>) {
          launch(each, most_keys_, site);
        } else if constexpr (std::is_same_v<Each, Judge>) {
          launch(each, staging_.resident(each), site);
        } else if constexpr (std::is_same_v<Each, AllReduce>) {
          launch(each, group_, site);
        } else {
          launch(each, site);
        }
      },
      op);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
