// The cpu backend's thread pool: every thread in every region, barriers that order, work handed out
// once, and sleep when idle.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/base/error.h"

namespace coppice::cpu {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

TEST_P(ThreadPoolTest, CallsEveryThreadOncePerRegion) {
  std::vector<int> calls(GetParam());
  constexpr int kRegions = 1000;
  for (int region = 0; region < kRegions; ++region) {
    pool_.run([&](int thread) noexcept { ++calls[thread]; });
  }
  EXPECT_EQ(calls, std::vector<int>(GetParam(), kRegions));
}

TEST_P(ThreadPoolTest, BarrierShowsWhatOthersWrote) {
  const int threads = GetParam();
  std::vector<int> written(threads, 0);
  std::vector<int> mistakes(threads, 0);
  constexpr int kPhases = 100;
  pool_.run([&](int thread) noexcept {
    for (int phase = 1; phase <= kPhases; ++phase) {
      written[thread] = phase;
      pool_.barrier();
      for (int other : written) mistakes[thread] += other != phase;
      pool_.barrier();
    }
  });
  EXPECT_EQ(mistakes, std::vector<int>(threads, 0));
}

TEST_P(ThreadPoolTest, HandsOutEachPieceOncePerPhase) {
  constexpr int kPieces = 100;
  constexpr int kPhases = 20;
  auto taken = std::make_unique<std::atomic<int>[]>(kPieces * kPhases);
  for (int region = 0; region < 2; ++region) {
    pool_.run([&](int) noexcept {
      for (int phase = 0; phase < kPhases; ++phase) {
        if (phase > 0) pool_.barrier();
        for (int i; (i = pool_.claim()) < kPieces;) ++taken[phase * kPieces + i];
      }
    });
  }
  for (int i = 0; i < kPieces * kPhases; ++i) ASSERT_EQ(taken[i], 2) << i;
}

TEST_P(ThreadPoolTest, WakesAfterSleeping) {
  int sum = 0;
  for (int region = 0; region < 20; ++region) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // far past the longest spin
    std::vector<int> calls(GetParam());
    pool_.run([&](int thread) noexcept {
      if (thread == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pool_.barrier();  // the others sleep here
      ++calls[thread];
    });
    for (int c : calls) sum += c;
  }
  EXPECT_EQ(sum, 20 * GetParam());
}

TEST_P(ThreadPoolTest, UsesNoProcessorTimeWhenIdle) {
  pool_.run([](int) noexcept {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used, 0.05);
}

TEST(ThreadPool, ComesAndGoes) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    EXPECT_EQ(pool.size(), 1 + i % 4);
  }
}

[[noreturn]] void ask_for_too_many_threads() {
  const rlimit few{16, 16};
  // root knows no limit
  if (setrlimit(RLIMIT_NPROC, &few) != 0 || (getuid() == 0 && setuid(65534) != 0)) std::exit(1);
  try {
    ThreadPool pool(1000);
  } catch (const Failure& failure) {
    std::fputs(failure.what(), stderr);
    std::exit(0);
  }
  std::exit(1);
}

TEST(ThreadPool, SaysWhenTheSystemGivesTooFewThreads) {
  EXPECT_EXIT(ask_for_too_many_threads(), testing::ExitedWithCode(0),
              "threads: the system refuses");
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace coppice::cpu
