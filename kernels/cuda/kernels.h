// What the CUDA backend launches: one function an operation of kernels/backend.h. Every pointer in
// an op is device memory here (backend.cpp brings in what is not). A launch function checks shapes,
// allocates nothing, waits for nothing and reads no table on the host, so that it can be captured
// into a graph; its grid depends on the op's sizes alone, never on what tables hold.
//
//   launch(op, {.stream = stream, .scratch = block.data()});
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/communicator.h"
#include "kernels/cuda/runtime.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

struct LaunchSite {
  Stream stream;
  std::byte* scratch = nullptr;  // scratch_bytes(op) at least; ops of a stream share it in turn
  bool exact = true;             // the same bits for any row count; else cuBLAS where it is faster
  void* blas = nullptr;          // make_blas() in fast mode
};

/// cuBLAS for one backend; null in emulation, which has a loop in its place.
std::shared_ptr<void> make_blas();

/// A weight in the products' own layout, in device memory; `pack` of backend.h. A part may have
/// another type than its neighbour. Throws Error for a type that has no kernel.
std::unique_ptr<Weight> pack_weight(std::span<const TensorView> parts, Stacking stacking);

// `most_keys` bounds the keys of every row of an attention op: the backend rounds it up, so that a
// graph serves many steps. Blocks behind a row's last key end at once.
size_t scratch_bytes(const Linear& op, bool exact);
size_t scratch_bytes(const Attention& op, int most_keys);
size_t scratch_bytes(const TopK& op);
size_t scratch_bytes(const Judge& op);
size_t scratch_bytes(const AllReduce& op, int ranks);

void launch(const Embed& op, const LaunchSite& at);
/// Norm and quantisation of the rows, the product, bias, activation and the residual sum.
void launch(const Linear& op, const LaunchSite& at);
void launch(const AddNorm& op, const LaunchSite& at);
void launch(const Copy& op, const LaunchSite& at);
/// Norms, rotary, the writes of K and V, then attention; in this order on the stream.
void launch(const Attention& op, int most_keys, const LaunchSite& at);
/// The moves happen in the order given, as backend.h says.
void launch(const MoveKv& op, const LaunchSite& at);
void launch(const TopK& op, const LaunchSite& at);
/// `resident` is the op itself in device memory: positions and noise change from step to step, and
/// a graph keeps its kernels' arguments.
void launch(const Judge& op, const Judge* resident, const LaunchSite& at);
/// `group` null: this device alone.
void launch(const AllReduce& op, Communicator* group, const LaunchSite& at);
/// Brings the first bytes of a weight to the second-level cache.
void fetch_ahead(const Weight& weight, Stream stream);

/// Whether kernels may start early here (launch.cuh): sm_90 or later, and compiled for it.
bool can_start_early();

/// Throws the Error for heads that no attention kernel is made for.
[[noreturn]] void refuse_head_size(int head_dim);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
