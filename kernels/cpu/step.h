// One step of the cpu backend: every op, done by all threads together.
//
//   pool.run([&](int thread) noexcept { Step{pool, kernels, plan, thread}.run(ops); });
#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/step_plan.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vocabulary.h"

namespace coppice::cpu {

/// Everything that depends on the dispatch target.
struct TargetKernels {
  const ProductKernels& products;
  const AttentionKernels& attention;
  const NormKernels& norm;
  const VocabularyKernels& vocabulary;
};

/// One thread's part of a step. All threads call run() with the same ops; one barrier stands
/// between ops, and within an op where its threads read what others wrote.
class Step {
 public:
  Step(ThreadPool& pool, const TargetKernels& kernels, const StepPlan& plan, int thread)
      : pool_(pool), kernels_(kernels), plan_(plan), thread_(thread) {}

  void run(std::span<const Op> ops) noexcept;

 private:
  void run(const Embed& op);
  void run(const Linear& op);
  void run(const AddNorm& op);
  void run(const Copy& op);
  void run(const Attention& op);
  void run(const MoveKv& op);
  void run(const TopK& op);
  void run(const Judge& op);
  void run(const AllReduce& op);

  void quantise(const Linear& op, int row, int first_block, int last_block, const Activations& to);
  void multiply(const Linear& op, const Activations& x);
  void attend_split(const Attention& op, const AttentionPlan& plan);
  void attend_tile(const Attention& op, const TileWork& tile, int kv_head);

  /// Calls body(i) for those i in 0..count-1 that this thread claims.
  template <class Body>
  void share(int count, Body body) {
    for (int i; (i = pool_.claim()) < count;) body(i);
  }

  /// The same for memory that is best read in order: most of it in one fixed run a thread, the rest
  /// for who is free first.
  template <class Body>
  void share_in_runs(int count, Body body) {
    const int threads = pool_.size();
    const int fixed = threads == 1 ? count : count * 7 / 8 / threads;
    for (int i = thread_ * fixed; i < (thread_ + 1) * fixed; ++i) body(i);
    share(count - threads * fixed, [&](int i) { body(threads * fixed + i); });
  }

  ThreadPool& pool_;
  const TargetKernels& kernels_;
  const StepPlan& plan_;
  int thread_;
};

}  // namespace coppice::cpu
