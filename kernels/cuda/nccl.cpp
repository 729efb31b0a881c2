// The communicators over NCCL; built without it, it says so. See communicator.h.
#include "kernels/base/error.h"
#include "kernels/cuda/communicator.h"

#if defined(COPPICE_NCCL)
#include <nccl.h>

#include <atomic>
#include <thread>
#include <utility>

#include "kernels/cuda/library.h"
#endif

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

#if defined(COPPICE_NCCL)
namespace {

struct Nccl {
  Library library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
  COPPICE_LIBRARY_FUNCTION(error_text, ncclGetErrorString);
  COPPICE_LIBRARY_FUNCTION(join_all, ncclCommInitAll);
  COPPICE_LIBRARY_FUNCTION(destroy, ncclCommDestroy);
  COPPICE_LIBRARY_FUNCTION(abort, ncclCommAbort);
  COPPICE_LIBRARY_FUNCTION(all_gather, ncclAllGather);
  COPPICE_LIBRARY_FUNCTION(all_reduce, ncclAllReduce);
  std::atomic<bool> someone_left = false;

  void check(ncclResult_t status, const char* doing) const {
    if (status != ncclSuccess) throw Failure("nccl: {}: {}", doing, error_text(status));
  }
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Nccl> nccl, ncclComm_t own, int rank, int ranks)
      : Communicator(rank, ranks), nccl_(std::move(nccl)), own_(own) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    if (own_ != nullptr) static_cast<void>(nccl_->destroy(own_));
  }

  void all_gather(const float* own, float* all, size_t count, Stream stream) override {
    nccl_->check(nccl_->all_gather(own, all, count, ncclFloat32, comm(), stream), "gathering sums");
  }
  void all_reduce(float* own, size_t count, Stream stream) override {
    nccl_->check(nccl_->all_reduce(own, own, count, ncclFloat32, ncclSum, comm(), stream),
                 "adding sums");
  }
  // A sum that waits for a rank which left never ends by itself: so the stream is asked.
  void wait(Stream stream) override {
    cudaError_t status = cudaErrorNotReady;
    while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) {
      static_cast<void>(comm());
      std::this_thread::yield();
    }
    check(status, "running a step");
  }
  void leave() override {
    nccl_->someone_left = true;
    if (own_ != nullptr) static_cast<void>(nccl_->abort(std::exchange(own_, nullptr)));
  }

 private:
  ncclComm_t comm() const {
    if (nccl_->someone_left) throw Failure("nccl: another device has failed");
    return own_;
  }

  std::shared_ptr<Nccl> nccl_;
  ncclComm_t own_;  // null: it has left
};

}  // namespace

Communicators nccl_communicators(int ranks) {
  const auto nccl = std::make_shared<Nccl>();
  std::vector<ncclComm_t> joined(static_cast<size_t>(ranks));
  nccl->check(nccl->join_all(joined.data(), ranks, nullptr), "joining the devices");
  Communicators group;
  for (int rank = 0; rank < ranks; ++rank) {
    group.push_back(
        std::make_unique<NcclCommunicator>(nccl, joined[static_cast<size_t>(rank)], rank, ranks));
  }
  return group;
}

#else

Communicators nccl_communicators(int ranks) {
  throw Error("--ranks {}: this build has no NCCL; install it, then configure anew", ranks);
}

#endif

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
