// A block of kTeamLanes threads as a team of kernels/shared/team.h: the same bits as the host's.
//
//   COPPICE_BLOCK_TEAM(team);
//   const double total = team.sum(vocabulary, [&](int i) { return weight[i]; });
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/shared/draw.h"
#include "kernels/shared/team.h"

namespace coppice::cuda {
inline namespace COPPICE_CUDA_BUILD {

using Mass = unsigned long long;  // what atomicAdd takes

class BlockTeam {
 public:
  __device__ BlockTeam(Shared<double> sums, Shared<Mass> masses, Shared<int32_t> indices)
      : sums_(sums), masses_(masses), indices_(indices) {}

  __device__ bool leads() const { return threadIdx.x == 0; }
  __device__ void wait() const { __syncthreads(); }

  template <class F>
  __device__ void for_each(int count, const F& f) const {
    for (int i = thread(); i < count; i += kTeamLanes) f(i);
    __syncthreads();
  }

  template <class F>
  __device__ double sum(int count, const F& f) const {
    double own = 0.0;
    for (int i = thread(); i < count; i += kTeamLanes) own += f(i);
    sums_[thread()] = own;
    __syncthreads();
    for (int half = kTeamLanes / 2; half > 0; half /= 2) {
      if (thread() < half) {
        const double low = sums_[thread()];
        const double high = sums_[thread() + half];
        sums_[thread()] = low + high;
      }
      __syncthreads();
    }
    const double total = sums_[0];
    __syncthreads();
    return total;
  }

  template <class F>
  __device__ uint64_t count(int count, const F& f) const {
    Mass own = 0;
    for (int i = thread(); i < count; i += kTeamLanes) own += f(i);
    if (leads()) masses_[0] = Mass{0};
    __syncthreads();
    atomicAdd(masses_ + 0, own);
    __syncthreads();
    const Mass total = masses_[0];
    __syncthreads();
    return total;
  }

  template <class F>
  __device__ Best best(int count, const F& f) const {
    Best own{0.0, -1};
    for (int i = thread(); i < count; i += kTeamLanes) {
      const Best part = f(i);
      if (better(part, own)) own = part;
    }
    put(thread(), own);
    __syncthreads();
    for (int half = kTeamLanes / 2; half > 0; half /= 2) {
      if (thread() < half) {
        const Best low = get(thread());
        const Best high = get(thread() + half);
        if (better(high, low)) put(thread(), high);
      }
      __syncthreads();
    }
    const Best winner = get(0);
    __syncthreads();
    return winner;
  }

  /// inverse_cdf: each thread adds up a chunk, all look for the one to draw from.
  template <class Weights>
  __device__ int draw(const Weights& weights, int count, double total, double uniform) const {
    const double goal = uniform * total;
    double before = 0.0, before_last = 0.0;
    int last = -1;
    for (int first = 0; first < count && !(before > goal); first += kTeamLanes * kDrawChunk) {
      const int own = first + thread() * kDrawChunk;
      sums_[thread()] = own < count ? chunk_sum(weights, own, draw_chunk_end(own, count)) : 0.0;
      __syncthreads();
      for (int chunk = 0; chunk < kTeamLanes; ++chunk) {
        const double sum = sums_[chunk];
        if (!(sum > 0.0)) continue;
        last = first + chunk * kDrawChunk;
        before_last = before;
        before += sum;
        if (before > goal) break;
      }
      __syncthreads();
    }
    const int drawn =
        last < 0 ? -1
                 : draw_in_chunk(weights, last, draw_chunk_end(last, count), before_last, goal);
    __syncthreads();  // the weights may change next
    return drawn;
  }

  __device__ void clear_bins() const {
    for (int b = thread(); b < 2 * kTeamBins; b += kTeamLanes) masses_[b] = Mass{0};
    __syncthreads();
  }
  __device__ void add_to_bin(int bin, uint64_t mass) const {
    atomicAdd(masses_ + bin, static_cast<Mass>(mass));
    atomicAdd(masses_ + (kTeamBins + bin), Mass{1});
  }
  __device__ uint64_t mass(int bin) const { return static_cast<Mass>(masses_[bin]); }
  __device__ uint64_t members(int bin) const { return static_cast<Mass>(masses_[kTeamBins + bin]); }

 private:
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  __device__ void put(int at, const Best& best) const {
    sums_[at] = best.score;
    indices_[at] = best.index;
  }
  __device__ Best get(int at) const {
    const double score = sums_[at];
    const int32_t index = indices_[at];
    return {score, index};
  }

  Shared<double> sums_;      // (kTeamLanes)
  Shared<Mass> masses_;      // (2 kTeamBins): masses, then members
  Shared<int32_t> indices_;  // (kTeamLanes)
};

}  // namespace COPPICE_CUDA_BUILD
}  // namespace coppice::cuda

#define COPPICE_BLOCK_TEAM(team)                                                  \
  COPPICE_SHARED(double, team##_sums, ::coppice::kTeamLanes);                     \
  COPPICE_SHARED(::coppice::cuda::Mass, team##_masses, 2 * ::coppice::kTeamBins); \
  COPPICE_SHARED(int32_t, team##_indices, ::coppice::kTeamLanes);                 \
  ::coppice::cuda::BlockTeam team(team##_sums, team##_masses, team##_indices)
