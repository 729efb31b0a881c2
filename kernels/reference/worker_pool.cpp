// See worker_pool.h.
#include "kernels/reference/worker_pool.h"

namespace coppice::reference {

WorkerPool::WorkerPool(int workers) {
  for (int worker = 1; worker < workers; ++worker) {
    threads_.emplace_back([this, worker] { serve(worker); });
  }
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(const Loop& loop) {
  next_task_ = 0;
  if (loop.tasks <= 1 || threads_.empty()) return take_tasks(loop, 0);
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    busy_ = static_cast<int>(threads_.size());
    ++generation_;
  }
  started_.notify_all();
  take_tasks(loop, 0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
}

void WorkerPool::take_tasks(const Loop& loop, int worker) {
  for (int task = next_task_++; task < loop.tasks; task = next_task_++) {
    loop.call(loop.body, task, worker);
  }
}

void WorkerPool::serve(int worker) {
  std::unique_lock lock(mutex_);
  for (int seen = 0;;) {
    started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    const Loop loop = loop_;
    lock.unlock();
    take_tasks(loop, worker);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

}  // namespace coppice::reference
