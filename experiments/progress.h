// How far a run is: a bar with the time left on a terminal, a line now and then elsewhere.
//
//   Progress progress(24, "prompts");
//   progress.advance(1);
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace coppice {

/// Minutes and seconds: "2:05", hours in front when there are any.
std::string clock_text(double seconds);

class Progress {
 public:
  /// Writes to `out`, which outlives the object.
  Progress(int total, std::string what, std::FILE* out = stderr);
  ~Progress();
  /// `done` more are finished.
  void advance(int done);

 private:
  void show();

  using Clock = std::chrono::steady_clock;
  int total_;
  int done_ = 0;
  std::string what_;
  std::FILE* out_;
  bool terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_ = start_;
};

}  // namespace coppice
