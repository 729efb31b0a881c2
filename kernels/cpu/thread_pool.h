// Threads that walk a step together: one parallel region a step, one barrier between phases that
// need it, and a shared counter that hands out a phase's work. Waiting spins for at most 50 us,
// then sleeps in the kernel, so that an idle pool costs nothing.
//
//   ThreadPool pool(2);
//   pool.run([&](int thread) noexcept {
//     for (int i; (i = pool.claim()) < panels;) multiply(i);
//     pool.barrier();
//     ...
//   });
#pragma once

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

namespace coppice::cpu {

class ThreadPool {
 public:
  /// `threads` in all, the caller of run() among them; at least 1. Throws Failure when the system
  /// gives fewer.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(t) once on every thread t in 0..size()-1, the caller being 0, and returns when all
  /// have returned. One caller at a time. Allocates nothing.
  template <class Body>
  void run(const Body& body) {
    static_assert(std::is_nothrow_invocable_v<const Body&, int>, "a region cannot throw");
    start(&body,
          [](const void* b, int thread) noexcept { (*static_cast<const Body*>(b))(thread); });
  }

  /// Inside a region: returns when every thread has called it. Writes made before it by any thread
  /// are seen after it by all.
  void barrier() noexcept;

  /// Inside a region: 0, 1, 2, ... over all threads together, from 0 again after each barrier.
  int claim() noexcept { return claimed_.fetch_add(1, std::memory_order_relaxed); }

 private:
  using Call = void (*)(const void* body, int thread) noexcept;
  void start(const void* body, Call call) noexcept;
  void work(int thread) noexcept;
  void stop() noexcept;

  // Each counter has a cache line of its own: all threads write them.
  alignas(64) std::atomic<int> region_{0};   // regions started
  alignas(64) std::atomic<int> phase_{0};    // barriers passed
  alignas(64) std::atomic<int> arrived_{0};  // threads waiting at the present barrier
  alignas(64) std::atomic<int> claimed_{0};
  alignas(64) const void* body_ = nullptr;
  Call call_ = nullptr;
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace coppice::cpu
