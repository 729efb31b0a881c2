// The limits that a model's steps are compared with: how fast this machine reads memory, and how
// fast it computes, measured by the probes of a dispatch target on pinned threads.
//
//   MachineLimits limits({.target = "avx2", .threads = 2}, size_t{1} << 30);
//   ReadSpeed speed = limits.read(size_t{97} << 20, 7);
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/probes.h"
#include "kernels/cpu/thread_pool.h"

namespace coppice {

/// How fast a buffer is read from one end to the other, again and again, by all threads together. A
/// buffer that fits a cache stays in it: a speed belongs to its size.
struct ReadSpeed {
  size_t bytes = 0;
  double best = 0.0;    // bytes a second, of all passes
  double median = 0.0;  // of the passes of the pattern with the highest median
  cpu::ReadPattern pattern;
};

class MachineLimits {
 public:
  /// `machine`: options of the cpu backend. `most_bytes`: the largest buffer that read() will be
  /// asked for; held, on huge pages where there are some. Pins the calling thread while it
  /// measures. Throws Error as make_backend does.
  MachineLimits(const BackendOptions& machine, size_t most_bytes);

  /// Tries every pattern, `passes` times each. `bytes` is rounded to what the threads share evenly.
  ReadSpeed read(size_t bytes, int passes);
  /// One pass in a pattern: bytes a second.
  double read_once(size_t bytes, const cpu::ReadPattern& pattern);
  /// fp32 operations a second of all threads, two a multiply-add; the best of `passes`.
  double multiply_add(int passes);
  /// The same of products of 4-bit and 8-bit integers.
  double dot(int passes);

 private:
  template <class Body>
  double seconds_of(const Body& body);

  size_t most_bytes_ = 0;
  Buffer memory_;
  std::vector<int> cores_;  // that this process may run on
  const cpu::MachineProbes& probes_;
  cpu::ThreadPool pool_;
};

}  // namespace coppice
