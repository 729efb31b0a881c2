// A stream beside a step's: what drafters read of a step (taps of hidden states, the likeliest
// tokens) is made there while the layers, the judging and the sums over ranks go on; so are weights
// fetched ahead. The step waits for it where an op touches the same memory, and at its end. In a
// graph this is a branch.
//
//   if (Branch::takes(op, later)) {
//     branch.fork(main);   launch(op, {.stream = branch.stream()});   branch.add(op);
//   }
//   if (branch.blocks(next)) branch.join(main);
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

class Branch {
 public:
  Branch();
  Branch(const Branch&) = delete;
  ~Branch();

  /// Whether `op` is a copy or a selection whose results none of the step's `later` ops touches,
  /// though there are some to run beside.
  static bool takes(const Op& op, std::span<const Op> later);
  Stream stream() const { return {stream_.get()}; }
  /// What is launched on stream() from here on follows all that is on `main` now.
  void fork(Stream main);
  /// `op` was launched on stream(), with its tables in host memory.
  void add(const Op& op);
  /// Whether `op` on the main stream must wait: it writes what an op here reads or writes, or reads
  /// what one writes.
  bool blocks(const Op& op) const;
  bool is_open() const { return open_; }
  /// Forgets what a step that failed left here.
  void drop();
  /// What is launched on `main` from here on follows all that is here.
  void join(Stream main);

 private:
  struct Region {
    const std::byte *begin, *end;
    bool written;
  };
  struct Collector;
  static std::vector<Region> regions_of(const Op& op);
  /// One of them is written where both meet.
  static bool clash(std::span<const Region> some, std::span<const Region> others);

  OwnStream stream_;
  cudaEvent_t forked_ = nullptr, joined_ = nullptr;
  bool open_ = false;
  std::vector<Region> touched_;
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
