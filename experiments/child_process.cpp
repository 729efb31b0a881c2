// See child_process.h.
#include "experiments/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "core/quote.h"
#include "experiments/interrupt.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 100;
constexpr size_t kKept = 64 * 1024;

/// Both ends of a pipe that no other program inherits.
class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) {
      throw Failure("a pipe to a child cannot be made: {}", std::strerror(errno));
    }
  }
  Pipe(const Pipe&) = delete;
  ~Pipe() {
    close_read();
    close_write();
  }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close(ends_[0]); }
  void close_write() { close(ends_[1]); }

 private:
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int ends_[2] = {-1, -1};
};

/// Takes what has come. False when the other side is closed.
bool take(int fd, std::string& kept, bool show) {
  char block[4096];
  const ssize_t count = ::read(fd, block, sizeof block);
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  if (count == 0) return false;
  kept.append(block, static_cast<size_t>(count));
  if (kept.size() > 2 * kKept) kept.erase(0, kept.size() - kKept);
  if (show) std::fwrite(block, 1, static_cast<size_t>(count), stderr);
  return true;
}

/// In the child: never returns. Nothing here allocates.
[[noreturn]] void start(const ChildCommand& command, char* const* words, const cpu_set_t* cores,
                        int out, int err, pid_t parent) {
  ::setpgid(0, 0);  // a Ctrl-C is ours to hand on
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kNotStarted);  // it died in between
  const int in = ::open("/dev/null", O_RDONLY);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (cores != nullptr) ::sched_setaffinity(0, sizeof *cores, cores);
  if (!command.prepare || command.prepare()) ::execvp(words[0], words);
  const char* reason = ::strerrordesc_np(errno);
  const char* parts[] = {words[0], ": cannot be run: ", reason != nullptr ? reason : "?", "\n"};
  for (const char* part : parts) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  ::_exit(kNotStarted);
}

}  // namespace

std::string ChildResult::reason() const {
  const size_t end = err.find_last_not_of(" \r\n");
  if (timed_out) return "took too long and was ended";
  if (status > kBySignal && status <= kBySignal + SIGRTMAX) {
    return fmt::format("was ended by signal {} ({})", status - kBySignal,
                       ::strsignal(status - kBySignal));
  }
  if (end == std::string::npos) return fmt::format("ended with exit code {}", status);
  const size_t before = err.find_last_of("\r\n", end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return escape(err.substr(begin, end + 1 - begin));
}

ChildResult run_child(const ChildCommand& command) {
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : command.cores) CPU_SET(static_cast<size_t>(core), &cores);

  Pipe out, err;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Failure("a child cannot be started: {}", std::strerror(errno));
  if (child == 0) {
    start(command, words.data(), command.cores.empty() ? nullptr : &cores, out.write_end(),
          err.write_end(), parent);
  }
  out.close_write();
  err.close_write();

  ChildResult result;
  const Clock::time_point begin = Clock::now();
  bool told = false;
  int status = 0;
  for (bool ended = false; !ended;) {
    ended = ::waitpid(child, &status, WNOHANG) == child;
    pollfd watched[] = {{out.read_end(), POLLIN, 0}, {err.read_end(), POLLIN, 0}};
    // Once it has ended, what is in the pipes is all that comes from it.
    while (::poll(watched, 2, ended ? 0 : kPollMs) > 0) {
      if (watched[0].revents != 0 && !take(out.read_end(), result.out, false)) {
        out.close_read();
        watched[0].fd = -1;
      }
      if (watched[1].revents != 0 && !take(err.read_end(), result.err, command.show_errors)) {
        err.close_read();
        watched[1].fd = -1;
      }
      watched[0].revents = watched[1].revents = 0;
      if (!ended) break;  // and look at the clock
    }
    if (ended) break;
    if (interrupted() && !told) {
      ::kill(child, SIGINT);
      told = true;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (command.limit_s > 0 && seconds > command.limit_s && !result.timed_out) {
      ::kill(-child, SIGKILL);
      result.timed_out = true;
    }
  }
  result.status = WIFSIGNALED(status) ? kBySignal + WTERMSIG(status) : WEXITSTATUS(status);
  for (std::string* text : {&result.out, &result.err}) {
    if (text->size() > kKept) text->erase(0, text->size() - kKept);
  }
  return result;
}

std::vector<int> usable_core_list() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return {0};
  std::vector<int> list;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &cores)) list.push_back(core);
  }
  return list;
}

}  // namespace coppice
