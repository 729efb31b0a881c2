// Another program, run to its end: on chosen cores, its output caught, ended with us.
//
//   const ChildResult ran = run_child({.words = {"/bin/echo", "hello"}});
//   // ran.status == 0, ran.out == "hello\n"
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace coppice {

struct ChildCommand {
  std::vector<std::string> words;  // the program first; looked for in PATH
  std::vector<int> cores;          // it may run on; empty: all of ours
  bool show_errors = false;        // its standard error goes to ours as it comes
  double limit_s = 0;              // it is killed behind this many seconds; 0: never
  /// Called in the child before the program starts; may use what is safe after fork alone. False
  /// ends the child with kNotStarted.
  std::function<bool()> prepare;
};

inline constexpr int kNotStarted = 127;  // as a shell says it
inline constexpr int kBySignal = 128;    // and the signal's number is added

struct ChildResult {
  int status = 0;  // its exit code, or kBySignal + the signal that ended it
  bool timed_out = false;
  std::string out, err;  // the last 64 KiB of each
  /// One line for a message: the last that it wrote to standard error, else how it ended.
  std::string reason() const;
};

/// Returns when the child has ended. An interrupt of ours (interrupt.h) is handed on to it; it does
/// not outlive the thread that calls. Throws Failure when no process can be made.
ChildResult run_child(const ChildCommand& command);

/// Cores that this process may run on, by number.
std::vector<int> usable_core_list();

}  // namespace coppice
