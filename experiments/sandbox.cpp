// See sandbox.h. Source: seccomp(2), filter programs of classic BPF.
#include "experiments/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "experiments/child_process.h"
#include "experiments/run_folder.h"
#include "kernels/base/error.h"

namespace coppice {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;  // no filter is known: refused
#endif

constexpr int kNotConfined = 126;  // exit code of a child that could not be

/// Calls that reach beyond the process. What is not listed stays allowed: Python needs much.
constexpr long kRefused[] = {
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_execveat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_truncate,
    SYS_ftruncate,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_io_uring_setup,
    SYS_io_setup,
    SYS_shmget,
    SYS_msgget,
    SYS_semget,
    SYS_mq_open,
    SYS_memfd_create,
    SYS_swapon,
    SYS_reboot,
    SYS_init_module,
    SYS_setpriority,
    SYS_sched_setaffinity,
    SYS_personality,
    SYS_fallocate,
    SYS_openat2,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_setpgid,
    SYS_setsid,
#if defined(__x86_64__)
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_mknod,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_creat,
    SYS_utime,
    SYS_utimes,
    SYS_fork,
    SYS_vfork,
#endif
};

constexpr sock_filter statement(uint16_t code, uint32_t value) {
  return {code, 0, 0, value};
}
constexpr sock_filter jump(uint16_t code, uint32_t value, uint8_t yes, uint8_t no) {
  return {code, yes, no, value};
}
constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);

/// The low half of a call's argument.
constexpr uint32_t argument(size_t index) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + index * sizeof(uint64_t));
}

/// Refuses the call when its argument has one of the bits (`wanted`), or none of them.
void refuse_by_bits(std::vector<sock_filter>& filter, long call, size_t index, uint32_t bits,
                    bool wanted) {
  filter.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4));
  filter.push_back(statement(kLoad, argument(index)));
  filter.push_back(jump(BPF_JMP | BPF_JSET | BPF_K, bits, wanted ? 0 : 1, wanted ? 1 : 0));
  filter.push_back(statement(BPF_RET | BPF_K, kRefuse));
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

std::vector<sock_filter> make_filter() {
  std::vector<sock_filter> filter = {
      statement(kLoad, offsetof(seccomp_data, arch)),
      jump(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      statement(kLoad, offsetof(seccomp_data, nr)),
      // Numbers of the x32 interface would pass by the list.
      jump(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1),
      statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  for (const long call : kRefused) {
    filter.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(statement(BPF_RET | BPF_K, kRefuse));
  }
  constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  refuse_by_bits(filter, SYS_openat, 2, kWriting, true);
#if defined(__x86_64__)
  refuse_by_bits(filter, SYS_open, 1, kWriting, true);
#endif
  constexpr uint32_t kThread = 0x00010000;  // CLONE_THREAD: threads may be, processes not
  refuse_by_bits(filter, SYS_clone, 0, kThread, false);
  // The C library then takes clone(), whose flags can be read here.
  filter.push_back(jump(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1));
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (ENOSYS & SECCOMP_RET_DATA)));
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

bool limit(int resource, uint64_t most) {
  const rlimit both = {most, most};
  return ::setrlimit(static_cast<__rlimit_resource>(resource), &both) == 0;
}

/// In the child, before Python starts. Nothing here allocates.
bool confine(std::span<const sock_filter> filter, const SandboxLimits& limits) {
  const auto seconds = static_cast<uint64_t>(limits.seconds) + 1;
  const sock_fprog program = {static_cast<unsigned short>(filter.size()),
                              const_cast<sock_filter*>(filter.data())};
  const bool confined = limit(RLIMIT_AS, limits.bytes) && limit(RLIMIT_CPU, seconds) &&
                        limit(RLIMIT_FSIZE, 0) && limit(RLIMIT_CORE, 0) &&
                        limit(RLIMIT_NOFILE, 64) && ::chdir("/") == 0 &&
                        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                        ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!confined) ::_exit(kNotConfined);
  return true;
}

/// A program as a file that lives as long as the object.
class ProgramFile {
 public:
  explicit ProgramFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / "coppice-code-XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    if (fd < 0) throw Failure("{}: cannot be written: {}", path_, std::strerror(errno));
    ::close(fd);
    write_whole_file(path_, text);
  }
  ProgramFile(const ProgramFile&) = delete;
  ~ProgramFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The interpreter itself: `python3` may be a script that looks for it, which the filter would end.
const std::string& interpreter() {
  static const std::string path = [] {
    const ChildResult ran =
        run_child({.words = {"python3", "-c", "import sys; print(sys.executable, end='')"}});
    if (ran.status != 0 || ran.out.empty()) {
      throw Error("running code: there is no python3 here; install it, or leave out --run-code");
    }
    return ran.out;
  }();
  return path;
}

}  // namespace

SandboxVerdict run_in_sandbox(const std::string& program, const SandboxLimits& limits) {
  if (kArchitecture == 0) throw Failure("running code: no confinement is known for this processor");
  static const std::vector<sock_filter> filter = make_filter();
  const ProgramFile file(program);  // an argument could be too long
  // -I: nothing of the user's environment or folder; -S: no site packages; -B: writes no bytecode.
  const ChildResult ran = run_child({.words = {interpreter(), "-I", "-S", "-B", file.path()},
                                     .limit_s = limits.seconds,
                                     .prepare = [&] { return confine(filter, limits); }});
  if (ran.status == kNotConfined) {
    throw Failure(
        "running code: the system refuses to confine a process (seccomp), and code is not run "
        "without; leave out --run-code");
  }
  return {ran.status == 0, ran.status == 0 ? "" : ran.reason()};
}

}  // namespace coppice
