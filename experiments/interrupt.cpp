// See interrupt.h.
#include "experiments/interrupt.h"

#include <csignal>

namespace coppice {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
std::atomic<bool> flag = false;

void on_signal(int signal) {
  flag = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& interrupted() {
  return flag;
}

InterruptGuard::InterruptGuard() {
  flag = false;
  for (const int signal : kSignals) std::signal(signal, on_signal);
}

InterruptGuard::~InterruptGuard() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

}  // namespace coppice
