// Runs a Python program that a model wrote: it may compute, read files and write to its own
// standard output; the kernel refuses it sockets, files to write, other processes and signals
// (seccomp).
//
//   const SandboxVerdict verdict = run_in_sandbox("assert 1 + 1 == 2\n", {});
//   // verdict.passed
#pragma once

#include <cstdint>
#include <string>

namespace coppice {

struct SandboxLimits {
  double seconds = 10;            // by the clock, and of the processor
  uint64_t bytes = 512ull << 20;  // of memory
};

struct SandboxVerdict {
  bool passed = false;
  std::string why;  // one line, where it did not: what Python raised, or which limit it met
};

/// Throws Error when there is no python3, Failure when the system cannot confine a process.
SandboxVerdict run_in_sandbox(const std::string& program, const SandboxLimits& limits);

}  // namespace coppice
