// The communicator over NCCL; built without it, it says so. Ranks meet by a file that holds NCCL's
// id of the group. See communicator.h.
#include "kernels/base/error.h"
#include "kernels/cuda/communicator.h"

#if defined(COPPICE_NCCL)
#include <nccl.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "kernels/cuda/library.h"
#endif

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

#if defined(COPPICE_NCCL)
namespace {

namespace fs = std::filesystem;
constexpr auto kPatience = std::chrono::seconds(60);

struct Nccl {
  Library library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
  COPPICE_LIBRARY_FUNCTION(error_text, ncclGetErrorString);
  COPPICE_LIBRARY_FUNCTION(get_id, ncclGetUniqueId);
  COPPICE_LIBRARY_FUNCTION(join, ncclCommInitRank);
  COPPICE_LIBRARY_FUNCTION(leave, ncclCommDestroy);
  COPPICE_LIBRARY_FUNCTION(all_gather, ncclAllGather);
  COPPICE_LIBRARY_FUNCTION(all_reduce, ncclAllReduce);

  void check(ncclResult_t status, const char* doing) const {
    if (status != ncclSuccess) throw Failure("nccl: {}: {}", doing, error_text(status));
  }
};

/// Rank 0 makes the id and moves it into place whole; the others wait for it.
ncclUniqueId meet(const Nccl& nccl, const GroupOptions& options) {
  ncclUniqueId id;
  if (options.rank == 0) {
    nccl.check(nccl.get_id(&id), "making the group's id");
    const fs::path unfinished = options.meeting.string() + ".part";
    std::ofstream(unfinished, std::ios::binary).write(id.internal, sizeof id.internal);
    std::error_code error;
    fs::rename(unfinished, options.meeting, error);
    if (error) throw Failure("{}: cannot be written", options.meeting.string());
    return id;
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!fs::exists(options.meeting)) {
    if (std::chrono::steady_clock::now() > end) {
      throw Failure("{}: rank 0 did not come; start all ranks", options.meeting.string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::ifstream in(options.meeting, std::ios::binary);
  if (!in.read(id.internal, sizeof id.internal)) {
    throw Failure("{}: holds no group's id; remove it", options.meeting.string());
  }
  return id;
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const GroupOptions& options)
      : rank_(options.rank), ranks_(options.ranks) {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "counting devices");
    check(cudaSetDevice(rank_ % devices), "choosing the device");
    nccl_.check(nccl_.join(&group_, ranks_, meet(nccl_, options), rank_), "joining the group");
    // Everyone has read the id: the file may not be met by the next group.
    if (rank_ == 0) {
      std::error_code ignored;
      fs::remove(options.meeting, ignored);
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override { static_cast<void>(nccl_.leave(group_)); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void all_gather(const float* own, float* all, size_t count, Stream stream) override {
    nccl_.check(nccl_.all_gather(own, all, count, ncclFloat32, group_, stream), "gathering sums");
  }
  void all_reduce(float* own, size_t count, Stream stream) override {
    nccl_.check(nccl_.all_reduce(own, own, count, ncclFloat32, ncclSum, group_, stream),
                "adding sums");
  }

 private:
  Nccl nccl_;
  int rank_, ranks_;
  ncclComm_t group_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> nccl_communicator(const GroupOptions& options) {
  return std::make_unique<NcclCommunicator>(options);
}

#else

std::unique_ptr<Communicator> nccl_communicator(const GroupOptions&) {
  throw Error("this build has no NCCL; install it, then configure anew");
}

#endif

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
