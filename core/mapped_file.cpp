// See mapped_file.h. The descriptor stays open so that whole() can ask for the file's size again.
#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace coppice {
namespace {

/// Of a regular file; -1: it is none.
off_t size_of(int descriptor) {
  struct stat status = {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  return regular ? status.st_size : -1;
}

}  // namespace

MappedFile::MappedFile(const std::string& path, std::string_view what) {
  // O_NONBLOCK: a FIFO must be refused, not waited for.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw Error("{}: cannot open it: {}", path, std::strerror(errno));
  const off_t bytes = size_of(descriptor_);
  void* address = bytes > 0 ? ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE,
                                     descriptor_, 0)
                            : MAP_FAILED;
  const int reason = errno;
  if (address == MAP_FAILED) {
    ::close(descriptor_);  // the destructor does not run
    if (bytes < 0) throw Error("{}: not a regular file; expected {}", path, what);
    if (bytes == 0) throw Error("{}: the file is empty; expected {}", path, what);
    throw Failure("{}: cannot map it: {}", path, std::strerror(reason));
  }
  image_ = {static_cast<const std::byte*>(address), static_cast<size_t>(bytes)};
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(image_.data()), image_.size());
  ::close(descriptor_);
}

void MappedFile::read_ahead() const {
  ::madvise(const_cast<std::byte*>(image_.data()), image_.size(), MADV_SEQUENTIAL);
}

bool MappedFile::whole() const {
  return size_of(descriptor_) >= static_cast<off_t>(image_.size());
}

}  // namespace coppice
