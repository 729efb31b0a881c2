// See run_folder.h.
#include "experiments/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "kernels/base/error.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFiles[] = {"manifest.json", "prompts.jsonl", "steps.jsonl",
                                       "summary.json",  "report.md",     "sweep.json"};

/// An open file descriptor.
class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  File(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool good() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  /// False, with errno set, when not everything could be written.
  bool write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t written = ::write(fd_, text.data(), text.size());
      if (written < 0 && errno != EINTR) return false;
      if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
  }

 private:
  int fd_;
};

}  // namespace

void write_whole_file(const fs::path& path, std::string_view text) {
  fs::path beside = path;
  beside += ".writing";
  bool written = false;
  {
    const File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    written = file.good() && file.write(text) && ::fsync(file.fd()) == 0;
  }
  if (written && ::rename(beside.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(beside.c_str());
  throw Failure("{}: cannot be written: {}", path.string(), std::strerror(reason));
}

std::string read_whole_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Failure("{}: cannot be read", path.string());
  return text;
}

RunFolder::RunFolder(fs::path path, Existing existing) : path_(std::move(path)) {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw Failure("{}: cannot be made: {}", path_.string(), error.message());
  if (!fs::is_empty(path_, error) && existing == Existing::refuse) {
    throw Error(
        "{}: is not empty; continue it with --resume, replace it with --overwrite, or name "
        "another folder with --out",
        path_.string());
  }
  if (::access(path_.c_str(), W_OK | X_OK) != 0) {
    throw Failure("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  if (existing != Existing::overwrite) return;
  for (const std::string_view name : kFiles) fs::remove(path_ / name, error);
}

bool RunFolder::has(std::string_view name) const {
  std::error_code error;
  return fs::exists(path_ / name, error);
}

void RunFolder::append(std::string_view name, std::string_view lines) const {
  const fs::path path = path_ / name;
  const File file(path, O_WRONLY | O_CREAT | O_APPEND);
  struct stat before {};
  if (file.good() && ::fstat(file.fd(), &before) == 0 && file.write(lines)) return;
  const int reason = errno;
  if (file.good() && ::ftruncate(file.fd(), before.st_size) != 0) {
    // The line stays cut; --resume drops it.
  }
  throw Failure("{}: cannot be written: {}; what is finished is kept, continue with --resume",
                path.string(), std::strerror(reason));
}

}  // namespace coppice
