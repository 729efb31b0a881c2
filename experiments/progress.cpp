// See progress.h.
#include "experiments/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace coppice {
namespace {

constexpr int kBarWidth = 30;
constexpr std::chrono::seconds kQuietFor{15};  // between lines when this is no terminal

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  const long hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(int total, std::string what, std::FILE* out)
    : total_(total), what_(std::move(what)), out_(out), terminal_(::isatty(::fileno(out)) != 0) {}

Progress::~Progress() {
  if (terminal_ && done_ > 0) std::fputs("\n", out_);
}

void Progress::advance(int done) {
  done_ += done;
  const Clock::time_point now = Clock::now();
  if (terminal_ || done_ >= total_ || now - shown_ >= kQuietFor) {
    shown_ = now;
    show();
  }
}

void Progress::show() {
  const double seconds = std::chrono::duration<double>(shown_ - start_).count();
  const double left = done_ > 0 ? seconds / done_ * std::max(total_ - done_, 0) : 0.0;
  const std::string state = fmt::format("{}/{} {}, {} gone, {} left", done_, total_, what_,
                                        clock_text(seconds), clock_text(left));
  if (!terminal_) {
    fmt::print(out_, "{}\n", state);
    std::fflush(out_);
    return;
  }
  const int filled = total_ > 0 ? std::min(kBarWidth * done_ / total_, kBarWidth) : kBarWidth;
  fmt::print(out_, "\r[{:#<{}}{:.<{}}] {}\033[K", "", filled, "", kBarWidth - filled, state);
  std::fflush(out_);
}

}  // namespace coppice
