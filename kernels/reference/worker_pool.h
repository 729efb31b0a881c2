// Threads that share out the numbered tasks of one loop at a time and sleep in between.
// Which thread runs a task never shows in a result: tasks write disjoint memory.
//
//   pool.for_each(panels, [&](int panel, int worker) { ... });
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace coppice::reference {

class WorkerPool {
 public:
  /// The calling thread is worker 0; `workers - 1` threads are started.
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(task, worker) once for every task in 0..tasks-1; returns when all are done.
  template <class Body>
  void for_each(int tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run({tasks, const_cast<void*>(static_cast<const void*>(std::addressof(body))),
         [](void* context, int task, int worker) {
           (*static_cast<Plain*>(context))(task, worker);
         }});
  }

 private:
  struct Loop {
    int tasks = 0;
    void* body = nullptr;
    void (*call)(void* body, int task, int worker) = nullptr;
  };

  void run(const Loop& loop);
  void take_tasks(const Loop& loop, int worker);
  void serve(int worker);

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  Loop loop_;              // guarded by mutex_
  int generation_ = 0;     // guarded by mutex_; counts loops
  int busy_ = 0;           // guarded by mutex_; threads that have not finished this loop
  bool stopping_ = false;  // guarded by mutex_
  std::atomic<int> next_task_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace coppice::reference
