// The op Judge on a device: a block a node finds the token behind it, then one block walks; under
// rejection one block warps a node's row when the walk comes there. The work itself is
// kernels/shared/judge.h, the same on the host.
//
//   launch(op, resident, site);
#include "kernels/base/error.h"
#include "kernels/cuda/block_team.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/shared/judge.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {
namespace {

/// The op's memory in the scratch block.
struct JudgeMemory {
  double* weight;  // (nodes, vocabulary); one row, then two more, for rejection
  float* scores;   // (nodes, vocabulary); one row, then another, for rejection
  int32_t* token;  // (nodes)
};

size_t rows_of(const Judge& op) {
  return op.rule == Judge::Rule::rejection ? 3 : static_cast<size_t>(op.nodes);
}

JudgeMemory place(const Judge& op, std::byte* scratch) {
  const size_t values = rows_of(op) * op.vocabulary;
  auto* weight = reinterpret_cast<double*>(scratch);
  auto* scores = reinterpret_cast<float*>(weight + values);
  return {weight, scores, reinterpret_cast<int32_t*>(scores + values)};
}

__global__ void __launch_bounds__(kTeamLanes, 1)
    find_tokens(const Judge* resident, JudgeMemory memory) {
  follow_previous();
  COPPICE_BLOCK_TEAM(team);
  const Judge& op = *resident;
  const int node = static_cast<int>(blockIdx.x);
  const size_t row = static_cast<size_t>(node) * op.vocabulary;
  JudgeScratch scratch;
  scratch.scores = memory.scores + row;
  scratch.weight = memory.weight + row;
  const int32_t token = judged_token(team, op, node, scratch);
  if (team.leads()) memory.token[node] = token;
}

__global__ void __launch_bounds__(kTeamLanes, 1)
    walk_by_tokens(const Judge* resident, JudgeMemory memory) {
  follow_previous();
  COPPICE_BLOCK_TEAM(team);
  walk_tokens(team, *resident, memory.token);
}

__global__ void __launch_bounds__(kTeamLanes, 1)
    walk_and_warp(const Judge* resident, JudgeMemory memory) {
  follow_previous();
  COPPICE_BLOCK_TEAM(team);
  const Judge& op = *resident;
  JudgeScratch scratch;
  scratch.scores = memory.scores;
  scratch.p = memory.scores + op.vocabulary;
  scratch.weight = memory.weight;
  scratch.residual = memory.weight + op.vocabulary;
  scratch.remaining = memory.weight + 2 * static_cast<size_t>(op.vocabulary);
  walk_by_rejection(team, op, scratch);
}

}  // namespace

size_t scratch_bytes(const Judge& op) {
  return rows_of(op) * op.vocabulary * (sizeof(double) + sizeof(float)) +
         static_cast<size_t>(op.nodes) * sizeof(int32_t);
}

void launch(const Judge& op, const Judge* resident, const LaunchSite& at) {
  COPPICE_CHECK(op.nodes > 0 && op.vocabulary > 0 && op.logits_stride >= op.vocabulary);
  const JudgeMemory memory = place(op, at.scratch);
  const auto shape = [&](const char* name, int blocks) {
    return LaunchShape{name, extent(blocks), extent(kTeamLanes), 0, at.stream};
  };
  if (op.rule == Judge::Rule::rejection) {
    launch<walk_and_warp>(shape("walk_and_warp", 1), resident, memory);
    return;
  }
  launch<find_tokens>(shape("find_tokens", op.nodes), resident, memory);
  launch<walk_by_tokens>(shape("walk_by_tokens", 1), resident, memory);
}

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda
