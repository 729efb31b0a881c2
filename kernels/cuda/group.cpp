// See group.h.
#include "kernels/cuda/group.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <list>

#include "kernels/base/error.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/cuda_backend.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

struct SharedWeight final : Weight {
  Share share = Share::first;
  std::vector<std::unique_ptr<Weight>> parts;  // one a device that has any
};

/// A device's part of tensors, copied where it is not a piece of memory as it stands.
class Slices {
 public:
  Slices(std::span<const TensorView> whole, Share share, int rank, int ranks) {
    for (const TensorView& view : whole) {
      if (share == Share::rows) {
        COPPICE_CHECK(view.rows % ranks == 0);
        const int64_t own = view.rows / ranks;
        views_.push_back({view.type, view.row(rank * own), own, view.cols});
      } else if (share == Share::columns) {
        views_.push_back(columns(view, rank, ranks));
      } else {
        views_.push_back(view);
      }
    }
  }
  std::span<const TensorView> views() const { return views_; }

 private:
  TensorView columns(const TensorView& view, int rank, int ranks) {
    const int64_t own = view.cols / ranks;
    COPPICE_CHECK(view.cols % ranks == 0 && own % traits(view.type).block_values == 0);
    TensorView part{view.type, nullptr, view.rows, own};
    const size_t bytes = part.row_bytes();
    std::vector<std::byte>& copy = copies_.emplace_back(part.bytes());
    for (int64_t r = 0; r < view.rows; ++r) {
      std::memcpy(copy.data() + static_cast<size_t>(r) * bytes,
                  view.row(r) + static_cast<size_t>(rank) * bytes, bytes);
    }
    part.data = copy.data();
    return part;
  }

  std::vector<TensorView> views_;
  std::list<std::vector<std::byte>> copies_;
};

class Group final : public Backend {
 public:
  Group(bool exact, Communicators communicators)
      : Backend(static_cast<int>(communicators.size())),
        communicators_(std::move(communicators)),
        devices_(communicators_.size()),
        threads_(ranks()) {
    const auto shared = std::make_shared<SharedMemory>();
    everywhere([&](int rank) {
      check(cudaSetDevice(rank), "choosing a device");
      device(rank) = std::make_unique<CudaBackend>(
          exact, communicators_[static_cast<size_t>(rank)].get(), shared);
    });
  }
  ~Group() override {
    threads_.run([&](int rank) noexcept { device(rank).reset(); });
  }

  std::string describe() const override {
    return fmt::format("{}, {} devices", devices_[0]->describe(), ranks());
  }

  std::unique_ptr<Weight> pack(std::span<const TensorView> parts, Stacking stacking,
                               Share share) override {
    if (share == Share::first) return devices_[0]->pack(parts, stacking);
    auto weight = std::make_unique<SharedWeight>();
    weight->share = share;
    weight->parts.resize(devices_.size());
    everywhere([&](int rank) {
      const Slices own(parts, share, rank, ranks());
      weight->parts[static_cast<size_t>(rank)] = device(rank)->pack(own.views(), stacking);
    });
    weight->outputs = weight->parts[0]->outputs;
    weight->inputs = weight->parts[0]->inputs;
    for (const auto& part : weight->parts) weight->bytes += part->bytes;
    return weight;
  }

  Buffer allocate(size_t bytes) override { return devices_[0]->allocate(bytes); }

  void run(std::span<const Op> ops) override {
    everywhere([&](int rank) { device(rank)->prepare(ops); });
    everywhere([&](int rank) { device(rank)->finish(); });
  }
  bool judges() const override { return true; }

 private:
  std::unique_ptr<CudaBackend>& device(int rank) { return devices_[static_cast<size_t>(rank)]; }

  /// On the thread of every device, the caller's being the first one's. Of those that fail, throws
  /// what the first did: others may fail because it left.
  template <class Work>
  void everywhere(const Work& work) {
    std::atomic<bool> failed = false;
    std::exception_ptr first;
    threads_.run([&](int rank) noexcept {
      try {
        work(rank);
      } catch (const std::exception& error) {
        if (!failed.exchange(true)) {
          const bool is_error = dynamic_cast<const Error*>(&error) != nullptr;
          first = is_error ? std::current_exception()
                           : std::make_exception_ptr(
                                 Failure("device {}: {}", rank, std::string_view(error.what())));
        }
        communicators_[static_cast<size_t>(rank)]->leave();
      }
    });
    if (first) std::rethrow_exception(first);
  }

  Communicators communicators_;
  std::vector<std::unique_ptr<CudaBackend>> devices_;
  cpu::ThreadPool threads_;
};

}  // namespace

std::unique_ptr<Backend> make_group(bool exact, Communicators communicators) {
  return std::make_unique<Group>(exact, std::move(communicators));
}

const Weight& own_part(const Weight& weight, int rank) {
  const auto* shared = dynamic_cast<const SharedWeight*>(&weight);
  return shared == nullptr ? weight : *shared->parts[static_cast<size_t>(rank)];
}

bool is_shared_by_rows(const Weight& weight) {
  const auto* shared = dynamic_cast<const SharedWeight*>(&weight);
  return shared != nullptr && shared->share == Share::rows;
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
