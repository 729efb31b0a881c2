// Spin a little, then sleep: how the pool's threads wait for work and for each other.
#include "kernels/cpu/thread_pool.h"

#include <chrono>
#include <system_error>

#include "kernels/base/error.h"

namespace coppice::cpu {
namespace {

/// As long as a step judges and drafts between two passes: threads that slept through that would be
/// woken late (measured: a millisecond more for the pass behind a draft of 80 microseconds).
constexpr auto kLongestSpin = std::chrono::microseconds(200);
constexpr int kPausesPerClockRead = 32;  // about a microsecond

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns the first value other than `old` that `word` takes.
int wait_past(const std::atomic<int>& word, int old) noexcept {
  const auto give_up = std::chrono::steady_clock::now() + kLongestSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      const int value = word.load(std::memory_order_acquire);
      if (value != old) return value;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  COPPICE_CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
  } catch (const std::system_error& error) {
    stop();
    throw Failure("threads: the system refuses more than {} of {} ({}); ask for fewer", size(),
                  threads, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  stop_ = true;
  region_.fetch_add(1);
  region_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start(const void* body, Call call) noexcept {
  body_ = body;
  call_ = call;
  // Sequentially consistent, as in barrier(): a plain store could pass notify's look for sleepers.
  region_.fetch_add(1);
  region_.notify_all();
  call(body, 0);
  barrier();
}

void ThreadPool::work(int thread) noexcept {
  int seen = 0;
  while (true) {
    // A region ends when every worker has reached its barrier, so none is ever missed.
    seen = wait_past(region_, seen);
    if (stop_) return;
    call_(body_, thread);
    barrier();
  }
}

void ThreadPool::barrier() noexcept {
  const int phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) {
    wait_past(phase_, phase);
    return;
  }
  arrived_.store(0, std::memory_order_relaxed);
  claimed_.store(0, std::memory_order_relaxed);
  phase_.fetch_add(1);
  phase_.notify_all();
}

}  // namespace coppice::cpu
