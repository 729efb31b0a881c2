// SIGINT and SIGTERM as a flag that long loops look at, so that a run ends between two prompts.
//
//   const InterruptGuard guard;
//   while (engine.step()) if (interrupted()) throw Interrupted{};
#pragma once

#include <atomic>

namespace coppice {

/// Thrown out of a run when the user asked for its end.
struct Interrupted {};

inline constexpr int kInterruptedStatus = 130;  // as a shell reports SIGINT

/// True from a signal on, while a guard lives.
const std::atomic<bool>& interrupted();

/// Catches the signals while it lives; a second signal ends the program at once. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
};

}  // namespace coppice
