// The emulator that CUDA kernels are tested in: what a right kernel computes, and that each kind of
// wrong kernel is caught under every order of threads.
//
//   build/release/tests/cuda_emulator_test --gtest_filter='*Barrier*'
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "tests/random_tensors.h"

namespace coppice::cuda {
namespace {

using test::Rng;
using ::testing::HasSubstr;

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kSeeds = 8;

LaunchShape threads(int count, int blocks = 1) {
  return {.name = "test", .grid = extent(blocks), .block = extent(count)};
}

/// What the launch reports; every order of threads must report something.
template <auto kKernel, class... Args>
std::string failure_of(int count, Args... args) {
  std::string what;
  for (int seed = 0; seed < kSeeds; ++seed) {
    emulator::set_seed(static_cast<uint64_t>(seed));
    try {
      launch<kKernel>(threads(count), args...);
      return "nothing, seed " + std::to_string(seed);
    } catch (const Failure& failure) {
      what = failure.what();
    }
  }
  return what;
}

__device__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

__global__ void warp_sums(const float* x, float* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  out[i] = warp_sum(x[i]);
}

TEST(CudaEmulator, WarpReduce) {
  std::vector<float> x(192), out(192);
  std::iota(x.begin(), x.end(), 1.0f);
  launch<warp_sums>(threads(96, 2), x.data(), out.data());
  for (int i = 0; i < 192; ++i) {
    const int first = i / 32 * 32 + 1;
    ASSERT_EQ(out[i], static_cast<float>(32 * first + 31 * 16)) << i;
  }
}

/// Inclusive sums over a block of up to 1024 threads.
__global__ void block_scan(const int* x, int* out) {
  COPPICE_SHARED(int, warp_total, 32);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  int sum = x[thread];
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += below;
  }
  if (lane == 31) warp_total[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += warp_total[w];
  out[thread] = sum;
}

TEST(CudaEmulator, BlockScan) {
  Rng rng(3);
  std::vector<int> x(1024), out(1024), expected(1024);
  for (int& value : x) value = rng.below(100);
  std::partial_sum(x.begin(), x.end(), expected.begin());
  for (int seed = 0; seed < kSeeds; ++seed) {
    emulator::set_seed(static_cast<uint64_t>(seed));
    launch<block_scan>(threads(1024), x.data(), out.data());
    ASSERT_EQ(out, expected);
  }
}

__global__ void votes(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = static_cast<int>(__ballot_sync(kAllLanes, lane % 3 == 0));
  if (lane < 16) {
    out[lane] = __shfl_down_sync(0xffffu, lane, 1, 16) * 1000 + __shfl_sync(0xffffu, lane, 5, 8);
  }
  if (__any_sync(kAllLanes, lane == 40) || !__all_sync(kAllLanes, lane < 32)) out[0] = -1;
  if (__syncthreads_count(lane < 7) != 7) out[0] = -2;
}

TEST(CudaEmulator, VotesAndPartialWarps) {
  std::vector<int> out(32);
  launch<votes>(threads(32), out.data());
  for (int lane = 0; lane < 32; ++lane) {
    const int next = lane == 15 ? 15 : lane + 1;
    const int expected = lane < 16 ? next * 1000 + (lane < 8 ? 5 : 13) : 0x49249249;
    ASSERT_EQ(out[lane], expected) << lane;
  }
}

// Matrices in plain order; what stands where in a lane's registers is the kernel's.

enum class Format { bf16, f16, s8, s8_half };

uint32_t pack_pair(Format format, float low, float high) {
  const auto bits = format == Format::bf16 ? float_to_bfloat16_bits : float_to_half_bits;
  return bits(low) | static_cast<uint32_t>(bits(high)) << 16;
}
uint32_t pack_bytes(const float* x) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<uint8_t>(static_cast<int8_t>(x[i]))) << (8 * i);
  }
  return word;
}

/// a (16, depth), b (8, depth): B by columns; c (16, 8) += a b.
__global__ void multiply(Format format, int depth, const float* a, const float* b, float* c) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const bool bytes = format == Format::s8 || format == Format::s8_half;
  const auto word = [&](const float* matrix, int row, int half) {
    const float* at = matrix + row * depth + half * (bytes ? 16 : 8) + t * (bytes ? 4 : 2);
    return bytes ? pack_bytes(at) : pack_pair(format, at[0], at[1]);
  };
  float sums[4];
  int integers[4];
  for (int i = 0; i < 4; ++i) {
    sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    integers[i] = static_cast<int>(sums[i]);
  }
  if (format == Format::s8_half) {
    mma_s8_half(integers, word(a, g, 0), word(a, g + 8, 0), word(b, g, 0));
  } else {
    const uint32_t operand[4] = {word(a, g, 0), word(a, g + 8, 0), word(a, g, 1),
                                 word(a, g + 8, 1)};
    const uint32_t b0 = word(b, g, 0), b1 = word(b, g, 1);
    if (format == Format::bf16) mma_bf16(sums, operand, b0, b1);
    if (format == Format::f16) mma_f16(sums, operand, b0, b1);
    if (format == Format::s8) mma_s8(integers, operand, b0, b1);
  }
  for (int i = 0; i < 4; ++i) {
    c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = bytes ? static_cast<float>(integers[i]) : sums[i];
  }
}

TEST(CudaEmulator, MmaEqualsThePlainProduct) {
  Rng rng(4);
  for (Format format : {Format::bf16, Format::f16, Format::s8, Format::s8_half}) {
    const int depth = format == Format::s8 ? 32 : 16;
    std::vector<float> a(16 * depth), b(8 * depth), c(16 * 8);
    for (float& value : a)
      value = static_cast<float>(rng.below(255) - 127);  // exact in all formats
    for (float& value : b) value = static_cast<float>(rng.below(255) - 127);
    for (float& value : c) value = static_cast<float>(rng.below(1000));
    std::vector<float> expected = c;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < depth; ++k) expected[i * 8 + j] += a[i * depth + k] * b[j * depth + k];
      }
    }
    launch<multiply>(threads(32), format, depth, a.data(), b.data(), c.data());
    ASSERT_EQ(c, expected) << static_cast<int>(format);
  }
}

// Wrong kernels.

__global__ void reverse(int barriers, int* out) {
  COPPICE_SHARED(int, tile, 64);
  const int i = static_cast<int>(threadIdx.x);
  for (int round = 0; round < 2; ++round) {
    tile[i] = i + round;
    if (barriers >= 1) __syncthreads();
    out[i] = tile[63 - i];
    if (barriers >= 2) __syncthreads();
  }
}

TEST(CudaEmulator, DroppedBarriersAreCaught) {
  std::vector<int> out(64);
  EXPECT_THAT((failure_of<reverse>(64, 0, out.data())), HasSubstr("'tile'"));
  EXPECT_THAT((failure_of<reverse>(64, 1, out.data())), HasSubstr("a race on 'tile'"));
  launch<reverse>(threads(64), 2, out.data());
  for (int i = 0; i < 64; ++i) ASSERT_EQ(out[i], 64 - i);
}

__global__ void warp_reverse(bool sync, int* out) {
  COPPICE_SHARED(int, tile, 32);
  const int i = static_cast<int>(threadIdx.x);
  tile[i] = i;
  if (sync) __syncwarp();
  static_cast<void>(__shfl_sync(kAllLanes, i, 0));  // all are here, but memory is not ordered
  out[i] = tile[31 - i];
}

TEST(CudaEmulator, ShufflesDoNotOrderMemory) {
  std::vector<int> out(32);
  EXPECT_THAT((failure_of<warp_reverse>(32, false, out.data())), HasSubstr("a race"));
  launch<warp_reverse>(threads(32), true, out.data());
  for (int i = 0; i < 32; ++i) ASSERT_EQ(out[i], 31 - i);
}

__global__ void same_place(bool warps_agree) {
  COPPICE_SHARED(int, flag, 1);
  if (warps_agree || threadIdx.x >= 32) {
    if (threadIdx.x % 32 == 0) flag[0] = 1;
  }
}

TEST(CudaEmulator, TwoWritersRace) {
  EXPECT_THAT(failure_of<same_place>(64, true), HasSubstr("a race on 'flag': a write"));
  launch<same_place>(threads(64), false);
}

__global__ void read_at(int index, bool write) {
  COPPICE_SHARED(float, before, 8);
  COPPICE_SHARED(float, tile, 8);
  if (threadIdx.x < 8) {
    before[threadIdx.x] = 0.0f;
    tile[threadIdx.x] = 0.0f;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (write) {
    tile[index] = 1.0f;
  } else {
    static_cast<void>(static_cast<float>(tile[index]));
  }
}

TEST(CudaEmulator, SharedAccessesOutOfBoundsAreCaught) {
  for (bool write : {false, true}) {
    EXPECT_THAT(failure_of<read_at>(32, 8, write),
                HasSubstr("bytes 32..35 of 'tile', which has 32"));
    EXPECT_THAT(failure_of<read_at>(32, -1, write), HasSubstr("bytes -4..-1 of 'tile'"));
    launch<read_at>(threads(32), 7, write);
  }
}

__global__ void read_unwritten(bool dynamic) {
  COPPICE_SHARED(float, tile, 8);
  COPPICE_DYNAMIC_SHARED(uint4, memory);
  if (dynamic) {
    if (threadIdx.x == 0) shared_cast<float>(memory)[3] = 1.0f;
    static_cast<void>(load_as<uint4>(memory));
  }
  static_cast<void>(static_cast<float>(tile[2]));
}

TEST(CudaEmulator, UnwrittenSharedMemoryIsCaught) {
  EXPECT_THAT(failure_of<read_unwritten>(1, false), HasSubstr("byte 8 of 'tile', which no thread"));
  LaunchShape shape = threads(1);
  shape.shared_bytes = 16;
  try {
    launch<read_unwritten>(shape, true);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("byte 0 of 'dynamic shared memory'"));
  }
}

__global__ void misaligned(const float* global, bool shared) {
  COPPICE_SHARED(float, tile, 8);
  if (shared) {
    store_as(tile + 1, make_uint2(1, 2));
  } else {
    static_cast<void>(load_as<uint4>(global + 1));
  }
}

TEST(CudaEmulator, MisalignedVectorsAreCaught) {
  alignas(16) const float global[8] = {};
  EXPECT_THAT((failure_of<misaligned>(1, static_cast<const float*>(global), true)),
              HasSubstr("misaligned access to 'tile'"));
  EXPECT_THAT((failure_of<misaligned>(1, static_cast<const float*>(global), false)),
              HasSubstr("misaligned load"));
}

enum class Wait { barrier_against_shuffle, two_shuffles, absent_lane, ended_lane, outside_mask };

__global__ void wait_wrongly(Wait kind) {
  const bool first = threadIdx.x == 0;
  const int lane = static_cast<int>(threadIdx.x);
  switch (kind) {
    case Wait::barrier_against_shuffle:
      if (first) {
        __syncthreads();
      } else {
        static_cast<void>(__shfl_sync(kAllLanes, lane, 0));
      }
      break;
    case Wait::two_shuffles:
      if (first) {
        static_cast<void>(__ballot_sync(kAllLanes, 1));
      } else {
        static_cast<void>(__shfl_sync(kAllLanes, lane, 0));
      }
      break;
    case Wait::absent_lane:
      if (lane < 16) static_cast<void>(__shfl_sync(0xffffu, lane, 20));
      break;
    case Wait::ended_lane:
      if (!first) __syncwarp();
      break;
    case Wait::outside_mask:
      __syncwarp(0xfffffffeu);
      break;
  }
}

TEST(CudaEmulator, WaitsThatCannotEndAreCaught) {
  EXPECT_THAT(failure_of<wait_wrongly>(32, Wait::barrier_against_shuffle),
              HasSubstr("1 threads wait at a barrier, 31 in warp-wide operations"));
  EXPECT_THAT(failure_of<wait_wrongly>(32, Wait::two_shuffles), HasSubstr("different warp-wide"));
  EXPECT_THAT(failure_of<wait_wrongly>(32, Wait::absent_lane), HasSubstr("from lane 20"));
  EXPECT_THAT(failure_of<wait_wrongly>(32, Wait::outside_mask), HasSubstr("mask lacks the lane"));
  // Caught by whoever finds it: the lanes that wait, or the launch when nobody can go on.
  EXPECT_THAT(failure_of<wait_wrongly>(32, Wait::ended_lane), HasSubstr("ended"));
}

__global__ void follow(bool all_wait) {
  let_next_start();
  if (all_wait || threadIdx.x != 5) wait_for_previous();
}

TEST(CudaEmulator, KernelsThatStartEarlyMustWait) {
  LaunchShape shape = threads(32);
  launch<follow>(shape, false);
  shape.stream.early = true;
  launch<follow>(shape, true);
  try {
    launch<follow>(shape, false);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("thread (5, 0, 0): it ends without wait_for_previous()"));
  }
}

__global__ void append(int* count, int* order) {
  order[atomicAdd(count, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

TEST(CudaEmulator, OrdersFollowTheSeed) {
  std::set<std::vector<int>> orders;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      int count = 0;
      std::vector<int> order(96);
      emulator::set_seed(static_cast<uint64_t>(seed));
      launch<append>(threads(48, 2), &count, order.data());
      if (repeat == 0) first = order;
      ASSERT_EQ(order, first);
    }
    orders.insert(first);
    std::sort(first.begin(), first.end());
    for (int i = 0; i < 96; ++i) ASSERT_EQ(first[i], i);  // each thread once
  }
  EXPECT_EQ(orders.size(), static_cast<size_t>(kSeeds));
}

__global__ void nothing() {}

TEST(CudaEmulator, LaunchesThatADeviceRefusesAreRefused) {
  EXPECT_THROW(launch<nothing>(threads(1025)), Failure);
  EXPECT_THROW(launch<nothing>(threads(0)), Failure);
  EXPECT_THROW(launch<nothing>(threads(32, 0)), Failure);
  LaunchShape shape = threads(32);
  shape.shared_bytes = 1 << 20;
  EXPECT_THROW(launch<nothing>(shape), Failure);
  launch<nothing>(threads(1024));
}

}  // namespace
}  // namespace coppice::cuda
