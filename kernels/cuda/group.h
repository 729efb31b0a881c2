// Several devices as one backend: tensor parallel inference in one process, a thread a device. The
// program above is told of none of it: it decides, draws and prints once. The first device runs
// every list of ops; the others follow it with their parts of the weights and of K and V, as far as
// the list's sums need them. Source: Shoeybi et al. 2019 (Megatron-LM), section 3.
//
//   auto backend = make_group(/*exact=*/true, nccl_communicators(4));
//   Model model(source, *backend);          // packs its layers by Share::rows and Share::columns
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/communicator.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

/// AllReduce sums over the devices: `exact` in their order, the same bits for any number of rows;
/// else as the communicator is fastest. When a device fails, so does the call, in one line, and the
/// group is of no more use. Throws Error and Failure.
std::unique_ptr<Backend> make_group(bool exact, Communicators communicators);

/// What a device has of a weight that the group packed; the first one's where it has nothing.
const Weight& own_part(const Weight& weight, int rank);
bool is_shared_by_rows(const Weight& weight);

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
