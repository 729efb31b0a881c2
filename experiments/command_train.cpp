// `coppice train`: starts the trainer, a program of its own beside this one, so that only those who
// train need and load libtorch. See experiments/training/main.cpp.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "experiments/commands.h"
#include "kernels/base/error.h"

namespace coppice {

int train_command(Arguments args) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "coppice-train").string();
  if (error || !std::filesystem::exists(program)) {
    throw Error(
        "coppice train: this build has no trainer, for libtorch was not found; install "
        "libtorch-dev and libopenblas0-pthread, or torch by `python3 -m venv DIR && DIR/bin/pip "
        "install torch` and configure with "
        "-DCOPPICE_TORCH=DIR/lib/python3.X/site-packages/torch; then build again");
  }
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  throw Failure("{}: cannot be started: {}", program, std::strerror(errno));
}

}  // namespace coppice
